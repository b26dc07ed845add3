"""What a request costs the control plane between `submit` and the sink: PERFORMANCE's other half, beside HTTP."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop

from fornada.core.errors import FornadaError
from fornada.core.names import Instant
from fornada.core.ports import ExitStatus, Launch
from fornada.core.requests import AnswerHead
from tests.loops.plain import plain_request
from tests.loops.world import FakeKeeper, World

REQUESTS = 20_000
IN_FLIGHT = 64
MOST_US = 12.0
"""Measured: 4 to 5 µs of CPU; a busy machine makes it more."""


class RealClock:
    def now(self) -> Instant:
        return Instant(time.monotonic())

    def wall(self) -> float:
        return time.time()


class EchoProcess:
    """core.ports.ProcessPort over echo_process.py."""

    def __init__(self, launch: Launch) -> None:
        self.instance = launch.instance
        self.memo = dict(launch.memo)
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self.link = self._ours.fileno()
        self.outbound = -1
        self.start = "exec"
        self.output, printing = os.pipe()
        os.set_blocking(self.output, False)
        script = str(Path(__file__).with_name("echo_process.py"))
        number = str(theirs.fileno())
        self._child = subprocess.Popen([sys.executable, "-I", "-S", script, number, launch.instance], pass_fds=[theirs.fileno()])
        self.pid = self._child.pid
        theirs.close()
        os.close(printing)
        self._ended: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()

    @property
    def alive(self) -> bool:
        return not self._ended.done()

    async def exited(self) -> ExitStatus:
        return await asyncio.shield(self._ended)

    def signal(self, number: int) -> None:
        if self.alive:
            self._child.kill()
            self._child.wait()
            self._ended.set_result(ExitStatus(None, 9))

    def forget(self) -> None:
        self._ours.close()
        os.close(self.output)


class EchoKeeper(FakeKeeper):
    async def spawn(self, launch: Launch) -> Any:
        process: Any = EchoProcess(launch)
        self.processes.append(process)
        return process


class Load:
    """So many requests, IN_FLIGHT at a time. It is every request's sink."""

    def __init__(self, world: World) -> None:
        self._node = world.node
        self._left = REQUESTS
        self._out = 0
        self._body = [b'{"x": [1.0, 2.0, 3.0, 4.0]}']
        self.done = asyncio.Event()

    def begin(self) -> None:
        for _ in range(IN_FLIGHT):
            self._one()

    def _one(self) -> None:
        self._left -= 1
        self._out += 1
        request = plain_request(self._body, head=b'{"request_id":"r","trace_id":"t","account":"local"}')
        self._node.submit(request, self)

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        assert body == self._body[0]
        self._out -= 1
        if self._left:
            self._one()
        elif not self._out:
            self.done.set()

    def refuse(self, error: FornadaError) -> None:
        raise error

    def stream_begins(self, head: AnswerHead) -> None:
        raise NotImplementedError

    def item(self, data: bytes) -> None:
        raise NotImplementedError

    def stream_ends(self, error: FornadaError | None, head: AnswerHead | None = None) -> None:
        raise NotImplementedError


async def cost_us() -> float:
    """µs of this process's CPU for one request, the best of three rounds."""
    rounds = []
    async with World(keeper=EchoKeeper(), clock=RealClock()) as world:
        world.put()
        for _ in range(3):
            load = Load(world)
            began = time.process_time()
            load.begin()
            await load.done.wait()
            rounds.append((time.process_time() - began) / REQUESTS * 1e6)
    return min(rounds)


@pytest.mark.alone
def test_a_request_costs_the_control_plane_a_few_microseconds_between_submit_and_answer():
    assert uvloop.run(cost_us()) < MOST_US
