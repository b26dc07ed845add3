"""The row `bodies`: long bodies on their way from the node's end of the wire to the model, through the shared file and in parts.

Our own link and a runner process of our own on both ends, without HTTP, so that nothing else is measured. The two ways take turns in one
process each; both runners have had as many bodies before, so that the file's pages are there. The model asks for its body's length.
"""

import argparse
import asyncio
import collections
import os
import socket
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from bench.measure import Outcome, process_cpu_s
from bench.yardstick.runner import start_runner
from fornada.core.names import LOCAL_ACCOUNT, Instant, ModelName
from fornada.core.requests import AnswerHead, InferenceRequest
from fornada.node.call import Call
from fornada.node.link import Link

ROW = "bodies"
SIZES = {150_000: 100, 6_000_000: 15, 100_000_000: 4}
"""Bytes, and how many of them make a cell."""
PIECE = 262_144
"""What a body arrives in, about, where it comes over HTTP."""
READY_S = 60.0
ANSWER_S = 60.0
MOST_OF_PARTS = {150_000: 1.0, 6_000_000: 0.5, 100_000_000: 0.5}
"""CPU time through the file over CPU time in parts."""
MODEL = """
import fornada_sdk

class Model(fornada_sdk.Model):
    def run(self, request, context):
        return {"size": len(request.body.bytes)}
"""
TOML = 'name = "@bench/size"\n[serving]\nmax_body = 134217728\n'


@dataclass(frozen=True)
class Uploads:
    """Bodies of one size, medians of all rounds; `through` the file and in `parts`. CPU time of both processes, for each body."""

    size: int
    through_ms: float
    parts_ms: float
    through_cpu_ms: float
    parts_cpu_ms: float
    cpu_ratio: float
    """Through the file over in parts, pair by pair."""


@dataclass(frozen=True)
class _Cell:
    p50_ms: float
    cpu_ms: float


class _End:
    """A link with its runner, and whoever waits for an answer."""

    def __init__(self, folder: Path, *, max_body: int) -> None:
        self.process, self._keeper, self._end = start_runner(folder)
        self._end.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self._end.setsockopt(socket.SOL_SOCKET, option, 4 * 1024 * 1024)
        self._loop = asyncio.get_running_loop()
        self.ready = self._loop.create_future()
        self._waiting: asyncio.Future[AnswerHead] | None = None
        self._number = 0
        itself: Any = self
        self.link = Link(
            self._end.fileno(),
            ears=itself,
            service_s=collections.deque(maxlen=1),
            runner_s=itself,
            max_body=max_body,
            now=self._now,
            loop=self._loop,
        )

    async def upload(self, pieces: Sequence[bytes]) -> None:
        request = InferenceRequest("r", "t", LOCAL_ACCOUNT, ModelName("@bench/size"), None, None, b"{}", pieces)
        self._number += 1
        self._waiting = self._loop.create_future()
        itself: Any = self
        now = self._now()
        self.link.send(Call(self._number, request, itself, itself, itself, Instant(now + ANSWER_S), now), now)
        await asyncio.wait_for(self._waiting, ANSWER_S)

    def cpu_s(self) -> float:
        """Of both processes."""
        return process_cpu_s(os.getpid()) + process_cpu_s(self.process.pid)

    def close(self) -> None:
        self.link.close()
        self._end.close()
        self._keeper.close()  # it ends with its keeper
        try:
            self.process.wait(READY_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _now(self) -> Instant:
        return Instant(self._loop.time())

    # what the link tells

    def greeted(self, hello: dict[str, Any]) -> None:
        if hello["state"] == "ready":
            self.loaded(hello)

    def loaded(self, _: dict[str, Any]) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    def faulted(self, reason: str) -> None:
        raise RuntimeError(reason)

    def answer(self, head: AnswerHead, _: Any) -> None:
        assert self._waiting is not None
        self._waiting.set_result(head)

    def refuse(self, error: Exception) -> None:
        assert self._waiting is not None
        self._waiting.set_exception(error)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None  # of no matter here


def measure(place: Path, *, rounds: int) -> list[Uploads]:
    """`place` is an empty folder. Raises RuntimeError, TimeoutError."""
    (place / "model.toml").write_text(TOML)
    (place / "model.py").write_text(MODEL)
    return uvloop.run(_measured(place, rounds))


async def _measured(place: Path, rounds: int) -> list[Uploads]:
    ends = {"through": _End(place, max_body=134_217_728), "parts": _End(place, max_body=0)}
    try:
        for end in ends.values():
            await asyncio.wait_for(end.ready, READY_S)
        return [await _size(ends, size, count, rounds) for size, count in SIZES.items()]
    finally:
        for end in ends.values():
            end.close()


async def _size(ends: dict[str, _End], size: int, count: int, rounds: int) -> Uploads:
    body = os.urandom(size)
    pieces = [body[at : at + PIECE] for at in range(0, size, PIECE)]
    for end in ends.values():
        for _ in range(3):
            await end.upload(pieces)
    cells: dict[str, list[_Cell]] = {way: [] for way in ends}
    for number in range(rounds):
        for way in list(ends)[:: 1 if number % 2 else -1]:
            cells[way].append(await _cell(ends[way], pieces, count))

    def middle(way: str, field: str) -> float:
        return float(statistics.median(asdict(cell)[field] for cell in cells[way]))

    pairs = zip(cells["through"], cells["parts"], strict=True)
    return Uploads(
        size=size,
        through_ms=middle("through", "p50_ms"),
        parts_ms=middle("parts", "p50_ms"),
        through_cpu_ms=middle("through", "cpu_ms"),
        parts_cpu_ms=middle("parts", "cpu_ms"),
        cpu_ratio=float(statistics.median(one.cpu_ms / other.cpu_ms for one, other in pairs if other.cpu_ms)),
    )


async def _cell(end: _End, pieces: Sequence[bytes], count: int) -> _Cell:
    took = []
    before = end.cpu_s()
    for _ in range(count):
        began = time.perf_counter()
        await end.upload(pieces)
        took.append(time.perf_counter() - began)
    return _Cell(statistics.median(took) * 1e3, (end.cpu_s() - before) / count * 1e3)


def row(place: Path, given: argparse.Namespace) -> Outcome:
    """Raises RuntimeError, TimeoutError."""
    folder = place / ROW
    folder.mkdir()
    found = measure(folder, rounds=given.rounds)
    return Outcome(_lines(found), _missed(found), [asdict(one) for one in found])


def _lines(found: Sequence[Uploads]) -> list[str]:
    return [
        f"{ROW} {one.size / 1e6:g} MB: through the file {one.through_ms:.2f} ms, in parts {one.parts_ms:.2f}; "
        f"CPU {one.through_cpu_ms:.2f} ms to {one.parts_cpu_ms:.2f}, {one.cpu_ratio:.2f} × (floor {MOST_OF_PARTS[one.size]:g})"
        for one in found
    ]


def _missed(found: Sequence[Uploads]) -> list[str]:
    return [
        f"{one.size / 1e6:g} MB take {one.cpu_ratio:.2f} × the CPU time of parts"
        for one in found
        if one.cpu_ratio > MOST_OF_PARTS[one.size]
    ]
