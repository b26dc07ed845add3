"""The watch over memory against processes that really take it."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fornada.keeper.memory_watch import Watched, look, over
from tests.bounds import bound

MIB = 1 << 20
NAME = f"fornada-test-{os.getpid()}"
PREAMBLE = """
import mmap, os, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
def ready():
    os.write(1, b"ready\\n")
    time.sleep(60)
def taken_by(children):
    # What they still take while it is counted would be in two of them, or in none.
    got = b""
    while len(got) < children:
        got += os.read(reads, children)
reads, writes = os.pipe()
"""
PRIVATE = "taken = [b'x' * (1 << 20) for _ in range(200)]; ready()"
FAMILY = """
for _ in range(4):
    if os.fork() == 0:
        taken = [b"x" * (1 << 20) for _ in range(50)]
        os.write(writes, b"x")
        time.sleep(60)
taken_by(4)
ready()
"""
COPY_ON_WRITE = """
taken = [b"x" * (1 << 20) for _ in range(200)]
for _ in range(4):
    if os.fork() == 0:
        time.sleep(60)
ready()
"""
MEMORY_FILE = """
file = os.memfd_create("bomb")
for _ in range(200):
    os.write(file, b"x" * (1 << 20))
ready()
"""
SHARED = """
size = 200 << 20
view = mmap.mmap(-1, size)
view.write(b"x" * size)
for _ in range(2):
    if os.fork() == 0:
        total = sum(view[offset] for offset in range(0, size, 4096))
        os.write(writes, b"x")
        time.sleep(60)
taken_by(2)
ready()
"""
MAPPED_FILE = """
size = 200 << 20
with open(sys.argv[1], "wb") as file:
    file.write(b"x" * size)
file = open(sys.argv[1], "rb")
view = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
total = sum(view[offset] for offset in range(0, size, 4096))
ready()
"""


@pytest.fixture
def started(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    program, folder = request.param if isinstance(request.param, tuple) else (request.param, tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", PREAMBLE + program, str(folder / NAME)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process.pid
    for pid in [process.pid, *_below(process.pid)]:
        subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True, timeout=bound(10))
    process.wait(bound(10))
    process.stdout.close()
    with contextlib.suppress(FileNotFoundError):
        (folder / NAME).unlink()


def _below(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def used(pid: int, limit: int) -> int:
    (sample,) = look([Watched(instance="m", pid=pid, limit_bytes=limit)])
    return sample.used_bytes


@pytest.mark.parametrize("started", [PRIVATE, FAMILY, MEMORY_FILE, SHARED], ids=["one", "family", "memory file", "shared"], indirect=True)
def test_who_takes_more_than_its_bound_is_seen(started: int):
    assert 200 * MIB <= used(started, 100 * MIB) < 300 * MIB
    (choice,) = over(look([Watched(instance="m", pid=started, limit_bytes=100 * MIB)]))
    assert choice.instance == "m"
    assert over(look([Watched(instance="m", pid=started, limit_bytes=400 * MIB)])) == ()


@pytest.mark.parametrize("started", [COPY_ON_WRITE], indirect=True)
def test_what_a_family_shares_is_counted_once(started: int):
    assert 200 * MIB <= used(started, 100 * MIB) < 300 * MIB


@pytest.mark.parametrize("started", [MAPPED_FILE, (MAPPED_FILE, Path("/dev/shm"))], ids=["disk", "tmpfs"], indirect=True)
def test_a_mapped_file_is_nobodys_memory(started: int):
    assert used(started, 100 * MIB) < 50 * MIB


def test_who_has_ended_gives_no_sample():
    process = subprocess.Popen(["true"])
    process.wait(bound(10))
    assert look([Watched(instance="m", pid=process.pid, limit_bytes=MIB)]) == []
