"""An instance's /proc/meminfo and /proc/cpuinfo, read as psutil and lscpu read them."""

import os
import re
import stat
import threading
from pathlib import Path

import pytest

from fornada.keeper.limits_view import LimitsView, render_cpuinfo, render_meminfo

MIB = 1 << 20
MACHINE = Path("/proc/meminfo").read_text()
X86 = "".join(
    f"processor\t: {number}\nmodel name\t: A\nphysical id\t: {number // 4}\nsiblings\t: 4\ncore id\t\t: {number % 4}\ncpu cores\t: 4\n"
    "flags\t\t: fpu vme\npower management:\n\n"
    for number in range(8)
)
ARM = (
    "".join(f"processor\t: {number}\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\n\n" for number in range(4)) + "Hardware\t: B\nRevision\t: 1\n"
)


def as_psutil(text: str) -> dict[str, int]:
    """psutil._pslinux.virtual_memory: each line's first word is the key, its second the number of kB, and these must be there."""
    numbers = {}
    for line in text.encode().splitlines():
        fields = line.split()
        numbers[fields[0]] = int(fields[1]) * 1024
    total, free, buffers = numbers[b"MemTotal:"], numbers[b"MemFree:"], numbers[b"Buffers:"]
    cached = numbers[b"Cached:"] + numbers.get(b"SReclaimable:", 0)
    for key in (b"Shmem:", b"Active:", b"Inactive:", b"Slab:", b"SwapTotal:", b"SwapFree:"):
        assert key in numbers
    available = numbers[b"MemAvailable:"]
    return {"total": total, "free": free, "used": total - free - cached - buffers, "available": available}


def test_the_machine_is_as_large_as_the_limit():
    seen = as_psutil(render_meminfo(MACHINE, limit_bytes=512 * MIB, used_bytes=112 * MIB))
    assert seen == {"total": 512 * MIB, "free": 400 * MIB, "used": 112 * MIB, "available": min(400 * MIB, seen["available"])}
    assert seen["available"] > 0


def test_no_more_is_promised_than_the_machine_has_free():
    busy = "MemTotal: 1048576 kB\nMemAvailable: 102400 kB\n"
    seen = as_psutil(render_meminfo(busy, limit_bytes=512 * MIB, used_bytes=0))
    assert (seen["total"], seen["available"]) == (512 * MIB, 100 * MIB)
    assert as_psutil(render_meminfo(busy, limit_bytes=4096 * MIB, used_bytes=0))["total"] == 1024 * MIB


@pytest.mark.parametrize("used", [0, 511 * MIB, 512 * MIB, 600 * MIB, -1])
def test_the_text_has_one_length_and_no_negative_number(used: int):
    text = render_meminfo(MACHINE, limit_bytes=512 * MIB, used_bytes=used)
    assert len(text) == len(render_meminfo("", limit_bytes=1 << 45, used_bytes=1 << 44))
    assert "-" not in text
    assert all(re.fullmatch(r"[A-Z][\w()]*: +\d+ kB", line) for line in text.splitlines())


def test_every_line_is_one_that_the_kernel_has():
    names = {line.partition(":")[0] for line in MACHINE.splitlines()}
    ours = {line.partition(":")[0] for line in render_meminfo(MACHINE, limit_bytes=MIB, used_bytes=0).splitlines()}
    assert ours - names <= {"KReclaimable", "Hugepagesize"}  # those that some kernels are built without


@pytest.mark.parametrize(("cpus", "count"), [(0.25, 1), (1, 1), (1.5, 2), (4, 4), (64, 8)])
def test_there_are_as_many_processors_as_the_limit_begins_to_use(cpus: float, count: int):
    text = render_cpuinfo(X86, cpus)
    assert re.findall(r"^processor\t: (\d+)$", text, re.MULTILINE) == [str(number) for number in range(count)]
    assert re.findall(r"^siblings\t: (\d+)$", text, re.MULTILINE) == [str(min(4, count))] * count
    assert text.count("flags\t\t: fpu vme\n") == count
    assert text.endswith("power management:\n\n")


def test_what_is_said_of_the_whole_machine_stays():
    text = render_cpuinfo(ARM, 2)
    assert text.count("processor") == 2
    assert "Hardware\t: B" in text


def test_the_machines_own_text_is_understood():
    own = Path("/proc/cpuinfo").read_text()
    assert render_cpuinfo(own, 10_000).count("processor\t") == own.count("processor\t")
    assert render_cpuinfo(own, 1).count("processor\t") == 1


def test_the_files_are_written_in_place_and_readable_by_all(tmp_path: Path):
    view = LimitsView(tmp_path, "m", memory_bytes=512 * MIB, cpus=1)
    assert view.meminfo is not None and view.cpuinfo is not None
    before = view.meminfo.stat()
    view.rewrite(12 * MIB)
    after = view.meminfo.stat()
    assert (before.st_ino, before.st_size) == (after.st_ino, after.st_size)
    assert as_psutil(view.meminfo.read_text())["used"] == 12 * MIB
    assert stat.S_IMODE(after.st_mode) == stat.S_IMODE(view.cpuinfo.stat().st_mode) == 0o444
    assert render_cpuinfo(Path("/proc/cpuinfo").read_text(), 1).count("processor") == view.cpuinfo.read_text().count("processor")
    view.close()
    assert os.listdir(tmp_path) == []


def test_without_a_limit_there_is_no_file(tmp_path: Path):
    view = LimitsView(tmp_path, "m", memory_bytes=0, cpus=0)
    view.rewrite(5)
    assert (view.meminfo, view.cpuinfo, os.listdir(tmp_path)) == (None, None, [])
    view.close()


def test_what_a_dead_keeper_left_is_replaced_and_a_link_is_not_followed(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "m.meminfo").symlink_to(victim)
    view = LimitsView(tmp_path, "m", memory_bytes=MIB, cpus=0)
    assert victim.read_text() == "mine"
    view.close()


def test_a_reader_never_misses_a_line(tmp_path: Path):
    view = LimitsView(tmp_path, "m", memory_bytes=1 << 40, cpus=0)
    assert view.meminfo is not None
    names = [line.partition(":")[0] for line in view.meminfo.read_text().splitlines()]
    stop = threading.Event()

    def writes() -> None:
        used = 0
        while not stop.is_set():
            used = (used + 999_999_999) % (1 << 40)
            view.rewrite(used)

    writer = threading.Thread(target=writes)
    writer.start()
    try:
        for _ in range(2000):
            lines = view.meminfo.read_text().splitlines()
            assert [line.partition(":")[0] for line in lines] == names
    finally:
        stop.set()
        writer.join()
        view.close()
