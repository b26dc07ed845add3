"""What a runner prints, however it prints it."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from fornada.core.names import ModelName
from fornada.node.output import CHUNK, OutputReader
from fornada.telemetry import Outputs
from tests.loops.virtual import VirtualClock, virtual

MODEL = ModelName("@test/a")


class Pipe:
    def __init__(self, folder: Path):
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.outputs = Outputs(folder, wall=VirtualClock().wall, max_bytes=1 << 24)
        loop = asyncio.get_running_loop()
        self.reader = OutputReader(self.reading, model=MODEL, instance='a-"1"', outputs=self.outputs, wall=VirtualClock().wall, loop=loop)

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
    assert pipe.reader.last_error_line() == "ValueError: no"
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
