"""One try of a webhook, against receivers on this machine that behave badly."""

import asyncio
import contextlib
import socket
import threading
import time

import pytest

from fornada.core.webhooks import HookFailed
from fornada.node.webhooks import HookClient
from tests.bounds import bound


def test_a_receiver_that_sends_a_byte_now_and_then_is_not_listened_to_for_ever():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        dripping = threading.Thread(target=drip, args=(server,))
        dripping.start()

        async def post() -> None:
            client = HookClient(allow_private=[f"127.0.0.1:{port}"], inherited={}, timeout_s=0.3)
            with pytest.raises(HookFailed, match=r"no answer within 0\.3 s"):
                await asyncio.wait_for(client.post(f"http://127.0.0.1:{port}/", b"{}", {}), bound(30))
            await client.close()

        asyncio.run(post())
        dripping.join(bound(30))
        assert not dripping.is_alive(), "the connection was kept"


def drip(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection, contextlib.suppress(ConnectionError):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
        while True:
            connection.sendall(b"a")
            time.sleep(0.01)
