"""What a runner prints, however it prints it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fornada.core.names import ModelName
from fornada.node.output import CHUNK, LINES_A_SECOND, LINES_A_TURN, PAUSE_S, READS_A_TURN, Crowd, OutputReader
from fornada.telemetry import Outputs
from fornada.telemetry.metrics import Count
from tests.loops.virtual import VirtualClock, virtual

MODEL = ModelName("@test/a")


class Pipe:
    def __init__(self, folder: Path, crowd: Crowd | None = None):
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.outputs = Outputs(folder, wall=VirtualClock().wall, max_bytes=1 << 24)
        loop = asyncio.get_running_loop()
        said_by: Any = {"model": MODEL, "instance": 'a-"1"'}
        self.counted = Count()
        outputs, wall = self.outputs, VirtualClock().wall
        self.reader = OutputReader(
            self.reading, outputs=outputs, lines_dropped=self.counted, crowd=crowd or Crowd(), wall=wall, loop=loop, **said_by
        )

    def write(self, data: bytes) -> None:
        os.write(self.writing, data)

    async def lines(self):
        await asyncio.sleep(0.1)
        return [entry async for entry in self.outputs.read(MODEL, last=10_000, follow=False)]

    def close(self) -> None:
        self.reader.close()
        for descriptor in (self.reading, self.writing):
            os.close(descriptor)
        self.outputs.close()


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def said(line, **more):
    return b"\x1e" + json.dumps({"stream": "stdout", "line": line, "request_id": "r1", "time": "t", **more}).encode() + b"\n"


@virtual
async def test_the_runners_lines_keep_their_request_and_get_our_instance(folder):
    pipe = Pipe(folder)
    pipe.write(said("hello") + said("forged", instance="b-2"))
    first, second = await pipe.lines()
    assert (first.line, first.stream, first.request_id, first.instance) == ("hello", "stdout", "r1", 'a-"1"')
    assert second.instance == 'a-"1"'
    pipe.close()


@virtual
async def test_lines_of_c_code_become_lines_of_stderr_whatever_bytes_they_hold(folder):
    pipe = Pipe(folder)
    pipe.write(b"terminate called\nb\xff\x00d\n\n\x1e{broken\n\x1enot json}\n")
    lines = await pipe.lines()
    assert [entry.line for entry in lines] == ["terminate called", "b\ufffd\0d", "\x1e{broken", "\x1enot json}"]
    assert {(entry.stream, entry.instance) for entry in lines} == {("stderr", 'a-"1"')}
    pipe.close()


@virtual
async def test_a_line_that_comes_in_pieces_is_one_line_and_one_without_end_is_kept_too(folder):
    pipe = Pipe(folder)
    whole = said("x" * 1000)
    for at in range(0, len(whole), 100):
        pipe.write(whole[at : at + 100])
        await asyncio.sleep(0.01)
    pipe.write(b"Segmentation fault")
    pipe.reader.close()
    assert [entry.line for entry in await pipe.lines()] == ["x" * 1000, "Segmentation fault"]
    pipe.close()


@virtual
async def test_the_last_line_on_stderr_says_why_it_failed(folder):
    pipe = Pipe(folder)
    pipe.write(said("Traceback", stream="stderr") + said("ValueError: no", stream="stderr") + said("bye") + said("  ", stream="stderr"))
    await asyncio.sleep(0.1)
    assert pipe.reader.last_error_line(under_way=["r1"]) == "ValueError: no"
    pipe.close()


@virtual
@pytest.mark.parametrize(
    ("tied_to", "under_way", "last"),
    [
        ("r1", [], "UserWarning: old"),
        ("r1", ["r2"], "UserWarning: old"),
        ("r1", ["r2", "r1"], "ValueError: no"),
        ("r1,r2", ["r2"], "ValueError: no"),
        ("a,b", ["a,b"], "ValueError: no"),
        ("", [], "ValueError: no"),
    ],
)
async def test_what_was_said_under_a_request_that_is_over_says_nothing_about_the_end(folder, tied_to, under_way, last):
    pipe = Pipe(folder)
    pipe.write(said("UserWarning: old", stream="stderr", request_id=""))
    pipe.write(said("ValueError: no", stream="stderr", request_id=tied_to))
    await asyncio.sleep(0.1)
    assert pipe.reader.last_error_line(under_way=under_way) == last
    pipe.close()


def written_at_a_crash() -> bytes:
    code = "import faulthandler; faulthandler.enable(); faulthandler._sigfpe()"
    died = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert died.returncode == -signal.SIGFPE
    return died.stderr + b"Extension modules: a.b, c (total: 2)\n"


@virtual
async def test_of_a_crash_the_line_that_names_it_says_why(folder):
    pipe = Pipe(folder)
    pipe.write(written_at_a_crash())
    await asyncio.sleep(0.1)
    assert pipe.reader.last_error_line(under_way=["r1"]).startswith("Fatal Python error: Floating")
    pipe.close()


@virtual
async def test_a_flood_is_read_no_faster_than_we_want(folder):
    pipe = Pipe(folder)
    os.set_blocking(pipe.writing, False)
    written = 0
    began = asyncio.get_running_loop().time()
    while written < 40 * CHUNK:
        try:
            written += os.write(pipe.writing, b"y" * 99 + b"\n")
        except BlockingIOError:
            await asyncio.sleep(0.001)
    assert asyncio.get_running_loop().time() - began > 0.1
    pipe.close()


class Counting(Outputs):
    """Counts what it is given to do."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, wall=VirtualClock().wall, max_bytes=1 << 24)
        self.writes: list[tuple[float, int]] = []

    def write(self, model, lines):
        self.writes.append((asyncio.get_running_loop().time(), lines.count(b"\n")))
        super().write(model, lines)

    def lines(self) -> int:
        return sum(count for _, count in self.writes)


async def flood(pipes, line: bytes, *, seconds: float) -> list[int]:
    """Keeps the pipes full. How many lines each has taken."""
    began, taken = asyncio.get_running_loop().time(), [0] * len(pipes)
    for pipe in pipes:
        os.set_blocking(pipe.writing, False)
    block = line * (4096 // len(line))
    while asyncio.get_running_loop().time() - began < seconds:
        for index, pipe in enumerate(pipes):
            try:
                while True:
                    taken[index] += os.write(pipe.writing, block) // len(line)
            except BlockingIOError:
                pass
        await asyncio.sleep(0.001)
    return taken


@pytest.mark.parametrize("line", [b"x\n", b'\x1e{"stream":"stdout","line":"x"}\n'], ids=["C code", "ours"])
@virtual
async def test_a_flood_of_short_lines_costs_no_more_work_than_is_given_to_it(folder, line):
    pipe = Pipe(folder)
    pipe.outputs = pipe.reader._outputs = Counting(folder / "counted")
    seconds = 4
    (taken,) = await flood([pipe], line, seconds=seconds)
    noted = sum(count == 1 for _, count in pipe.outputs.writes)
    assert noted <= seconds + 1
    assert LINES_A_SECOND <= pipe.outputs.lines() - noted <= LINES_A_SECOND * (seconds + 1)
    for at, _ in pipe.outputs.writes:
        assert sum(count for later, count in pipe.outputs.writes if at <= later < at + PAUSE_S * 0.9) <= LINES_A_TURN + 1
    before = pipe.reader.dropped
    assert before > 0
    pipe.reader.close()
    stored = sum(count for _, count in pipe.outputs.writes if count > 1)
    assert stored + pipe.reader.dropped == taken, "a line is stored, or counted"
    assert pipe.counted.value == pipe.reader.dropped > 0
    told = [entry.line async for entry in pipe.outputs.read(MODEL, last=10**6, follow=False) if entry.stream == "node"]
    assert sum(int(text.split()[0]) for text in told) == pipe.reader.dropped
    pipe.close()


@virtual
async def test_lines_that_come_one_by_one_cost_a_read_each_and_are_read_no_faster(folder):
    pipe = Pipe(folder)
    pipe.outputs = pipe.reader._outputs = Counting(folder / "counted")
    began = asyncio.get_running_loop().time()
    for _ in range(100 * READS_A_TURN):
        pipe.write(b"x\n")
        await asyncio.sleep(0)  # time passes only where nothing can be done at once
    assert asyncio.get_running_loop().time() == began
    assert len(pipe.outputs.writes) <= READS_A_TURN
    await asyncio.sleep(1.0)
    assert pipe.outputs.lines() == 100 * READS_A_TURN, "nothing is lost by it"
    pipe.close()


@virtual
async def test_many_who_flood_share_what_one_of_them_would_get(folder):
    crowd = Crowd()
    pipes = [Pipe(folder / f"{index}", crowd) for index in range(8)]
    for index, pipe in enumerate(pipes):
        pipe.outputs = pipe.reader._outputs = Counting(folder / f"counted-{index}")
    await flood(pipes, b"y" * 99 + b"\n", seconds=0.2)
    assert crowd.size == len(pipes)
    taken = await flood(pipes, b"y" * 99 + b"\n", seconds=1.0)
    assert sum(taken) * 100 <= 2 * (1.0 / PAUSE_S) * CHUNK, "together, what one may have (and twice as much for the edges)"
    assert min(taken) > max(taken) / 2, "one as much as the other"
    for pipe in pipes:
        pipe.close()
    assert crowd.size == 0


@virtual
async def test_the_last_words_of_a_flood_still_say_why_it_failed(folder):
    pipe = Pipe(folder)
    await flood([pipe], b"x\n", seconds=0.5)
    await asyncio.sleep(0.5)
    pipe.write(b"ValueError: no\n")
    pipe.reader.close()
    assert pipe.reader.last_error_line(under_way=["r1"]) == "ValueError: no"
    assert (await pipe.lines())[-2].line == "ValueError: no", "the very last one tells how many were dropped"
    pipe.close()
