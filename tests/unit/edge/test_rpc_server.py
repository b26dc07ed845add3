"""The gRPC port's bounds, with a server that has no method."""

import asyncio
import socket
from typing import Any

import grpc  # type: ignore[import-untyped]

from fornada.edge.dialects.oip.rpc.server import RpcServer
from tests.bounds import bound

MOST = 5


class Nothing(grpc.GenericRpcHandler):  # type: ignore[misc, unused-ignore]
    def service(self, details: Any) -> Any:
        return None


async def closed(sockets: list[socket.socket]) -> list[socket.socket]:
    """Those that the server has closed by now."""
    found = []
    for each in sockets:
        try:
            while each.recv(4096):
                pass
        except BlockingIOError:
            continue
        except ConnectionError:
            pass
        found.append(each)
    return found


async def reach(condition: Any) -> None:
    async with asyncio.timeout(bound(15)):
        while not await condition():
            await asyncio.sleep(0.02)


def test_no_more_connections_are_open_than_the_bound_and_whoever_leaves_makes_room():
    async def run() -> None:
        service: Any = Nothing()
        server = RpcServer(service, addresses=["127.0.0.1:0"], tls=None, connections=MOST)
        await server.start()
        (port,) = server.ports
        sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * MOST)]
        for each in sockets:
            each.setblocking(False)

        async def only_as_many_are_left() -> bool:
            return len(await closed(sockets)) == 2 * MOST

        async def is_served() -> bool:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                try:
                    await channel.unary_unary("/no/method")(b"", timeout=bound(2))
                except grpc.aio.AioRpcError as refusal:
                    return bool(refusal.code() is grpc.StatusCode.UNIMPLEMENTED)
            return False

        try:
            await reach(only_as_many_are_left)
            for each in sockets:
                each.close()
            await reach(is_served)
        finally:
            await server.stop(0)

    asyncio.run(run())
