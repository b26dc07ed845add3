"""Paced streams over HTTP while the model is parked between them and the control plane stands still now and then: each one ends."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import time

import pytest

from tests.bounds import bound, count
from tests.harness.bundles import archive
from tests.harness.fixtures import StartNode
from tests.harness.node import DEFAULT_CONFIG, RUN, Node

PARK_S = 0.05
STREAMS = 24
STALL_S = 20.0
NAME = "@test/paced"
TOML = f'name = "{NAME}"\n[serving]\nconcurrency = 64\n'
CODE = """
import asyncio
async def stream(keys):
    for number in range(keys["steps"]):
        await asyncio.sleep(keys["pause_s"])
        yield {"i": number, "pad": "x" * keys["size"]}
class Handle:
    async def __call__(self, request, context):
        keys = request.body.json
        return stream(keys) if "steps" in keys else keys
handle_request = Handle()
"""


async def listened(node: Node, keys: dict, *, slow_s: float, leaves_after: int) -> str:
    """What became of one stream: `whole`, `left`, or what is wrong with it."""
    body = json.dumps({**keys, "stream": True}).encode()
    lines = [f"POST {RUN}{NAME} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    head = "".join(f"{line}\r\n" for line in [*lines, "Connection: close", ""])
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, node.address)
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 20)
    try:
        writer.write(head.encode() + body)
        status = await reader.readline()
        seen = 0
        async for line in reader:
            if line.startswith(b"data: {"):
                if json.loads(line[6:])["i"] != seen:
                    return f"item {line[:40]!r} came as number {seen}"
                seen += 1
                if seen == leaves_after:
                    return "left"
                if slow_s:
                    await asyncio.sleep(slow_s)
        return "whole" if seen == keys["steps"] else f"{seen} of {keys['steps']} items after {status!r}"
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def ask_on_and_on(node: Node) -> None:
    """Short requests beside, one after the other; each is answered."""
    number = 0
    while True:
        number += 1
        answer = await asyncio.to_thread(node.run, NAME, {"n": number}, timeout_s=STALL_S)
        assert answer.result == {"n": number}
        await asyncio.sleep(0.005)


async def stopped_now_and_then(node: Node, chance: random.Random) -> None:
    pid = node.control_pid
    while True:
        await asyncio.sleep(chance.random() * 0.2)
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(chance.random() * 0.05)
        finally:
            os.kill(pid, signal.SIGCONT)


async def rounds(node: Node, chance: random.Random, times: int) -> int:
    """How often it was parked where there was time for that."""
    parked = 0
    for number in range(times):
        trouble = [asyncio.ensure_future(stopped_now_and_then(node, chance))]
        if number % 2:
            trouble.append(asyncio.ensure_future(ask_on_and_on(node)))
        streams = []
        for _ in range(STREAMS):
            keys = {"steps": chance.randrange(1, 6), "pause_s": 0.005, "size": chance.choice([5] * 8 + [3000, 70_000, 300_000])}
            slow_s, leaves_after = chance.choice([0, 0, 0.02]), chance.choice([0] * 5 + [1])
            streams.append(asyncio.ensure_future(listened(node, keys, slow_s=slow_s, leaves_after=leaves_after)))
            await asyncio.sleep(chance.random() * 0.0006)
        try:
            _, late = await asyncio.wait(streams, timeout=bound(STALL_S))
            assert not late, f"round {number}: {len(late)} of {STREAMS} streams stand still\n{node.model(NAME)}"
            assert {stream.result() for stream in streams} <= {"whole", "left"}
            assert not trouble[1:] or not trouble[1].done() or trouble[1].result()
        finally:
            for one in [*trouble, *streams]:
                one.cancel()
            await asyncio.gather(*trouble, *streams, return_exceptions=True)
        await asyncio.sleep(PARK_S * chance.choice([0, 0.8, 1.0, 1.2, 4.0]))  # any moment around the parking
        parked += node.model(NAME)["instances"][0]["parked"]
    return parked


@pytest.mark.timeout(900)
def test_streams_that_begin_and_end_around_a_parking_all_end(new_node: StartNode):
    node = new_node(config=f"{DEFAULT_CONFIG}park_after_s = {PARK_S}\n").start()
    node.deploy(NAME, archive({"model.toml": TOML, "model.py": CODE}))
    node.load(NAME)
    parked = asyncio.run(rounds(node, random.Random(count(11, long=int(time.time()))), count(12, long=500)))
    assert parked > 0 and node.loads(NAME) == 1
    assert node.stop() == 0
