"""Who is ended for want of memory where there are no cgroups."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fornada.keeper.memory_watch import CALM_S, CLOSE_S, Sample, Watched, look, next_look_s, over

MIB = 1 << 20
SAMPLES = st.lists(
    st.builds(
        Sample,
        instance=st.uuids().map(str),
        limit_bytes=st.integers(0, 1000),
        used_bytes=st.integers(0, 2000),
    ),
    max_size=8,
)


def sample(instance: str, used: int, limit: int) -> Sample:
    return Sample(instance=instance, used_bytes=used, limit_bytes=limit)


def test_whoever_holds_more_than_its_bound_is_ended_the_worst_first():
    found = over([sample("a", 101, 100), sample("b", 100, 100), sample("c", 300, 100), sample("d", 5000, 0)])
    assert [choice.instance for choice in found] == ["c", "a"]
    assert found[1].reason == "its processes hold 101 bytes, and 100 are its bound"


@given(SAMPLES)
def test_nobody_within_the_bound_is_ended_and_everybody_beyond_is(samples: list[Sample]):
    ended = {choice.instance for choice in over(samples)}
    assert ended == {sample.instance for sample in samples if sample.limit_bytes and sample.used_bytes > sample.limit_bytes}


def test_the_next_look_comes_sooner_with_somebody_near_the_bound():
    assert (CALM_S, CLOSE_S) == (0.5, 0.1)
    assert next_look_s([]) == CALM_S
    assert next_look_s([sample("a", 80, 100), sample("b", 10_000, 0)]) == CALM_S
    assert next_look_s([sample("a", 81, 100)]) == CLOSE_S


# ---- processes made of files

with open(os.memfd_create("device"), "rb") as _file:
    _DEVICE = os.fstat(_file.fileno()).st_dev
DEVICE = f"{os.major(_DEVICE):02x}:{os.minor(_DEVICE):02x}"
ROLLUP = (
    "5000-6000 ---p 00000000 00:00 0 [rollup]\nRss: {rss} kB\nPss: 9 kB\nPss_Anon: {anon} kB\nPss_File: 700 kB\nPss_Shmem: {shmem} kB\n"
)


def process(proc: Path, pid: int, parent: int, *, resident_kib: int, anon: int = 0, shmem: int = 0, name: str = "a) b") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0")
    (folder / "statm").write_text(f"99999 {resident_kib // 4} 10 1 0 1 0")
    (folder / "smaps_rollup").write_text(ROLLUP.format(rss=resident_kib, anon=anon, shmem=shmem) + "SwapPss: 8 kB\nPrivate_Hugetlb: 0 kB\n")
    (folder / "smaps").write_text(
        f"1000-2000 rw-s 00000000 {DEVICE} 7  /dev/zero (deleted)\nSize: 9 kB\nRss: 9 kB\nPss: {shmem} kB\nPss_Dirty: 5 kB\n"
        "2000-3000 r--s 00000000 fe:00 8  /weights\nSize: 9 kB\nPss: 700 kB\nPss_Dirty: 0 kB\n"
    )


def test_all_processes_below_the_first_count_and_nobody_elses(tmp_path: Path):
    process(tmp_path, 10, 1, resident_kib=1000, anon=400, shmem=20)
    process(tmp_path, 11, 10, resident_kib=1000, anon=300)
    process(tmp_path, 12, 11, resident_kib=1000, anon=200)
    process(tmp_path, 20, 1, resident_kib=9000, anon=9000)
    (tmp_path / "self").mkdir()
    watched = [Watched(instance="m", pid=10, limit_bytes=2 * MIB), Watched(instance="gone", pid=77, limit_bytes=MIB)]
    assert look(watched, proc=tmp_path) == [Sample(instance="m", limit_bytes=2 * MIB, used_bytes=(400 + 300 + 200 + 20 + 3 * 8) * 1024)]


def test_who_is_far_from_the_bound_is_not_looked_at_closely(tmp_path: Path):
    process(tmp_path, 10, 1, resident_kib=1000)
    (tmp_path / "10" / "smaps_rollup").write_text("never read")
    assert look([Watched(instance="m", pid=10, limit_bytes=4 * MIB)], proc=tmp_path)[0].used_bytes == 1000 * 1024


def test_nobody_watched_is_nothing_read(tmp_path: Path):
    assert look([], proc=tmp_path / "nowhere") == []
