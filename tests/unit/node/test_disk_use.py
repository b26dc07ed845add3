"""What a folder takes of the disk, whatever a hostile process makes of it."""

import asyncio
import ctypes
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fornada.node.disk_use import DEEPEST, FOLDERS_MOST, held, held_without_name, remove, removed
from tests.bounds import bound
from tests.harness.throwaway import STRANGER

MIB = 1024 * 1024
SMALL = 64 * 1024
"""What folders and the ends of files may add."""


def fill(path, size=MIB):
    path.write_bytes(b"x" * size)
    return path


def test_the_sum_of_all_files_counts_wherever_they_lie(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        fill(folder / "one")
        fill(folder / ".two")
    found = held(tmp_path)
    assert 6 * MIB <= found.bytes < 6 * MIB + SMALL
    assert (found.files, found.hidden) == (8, "")


def test_holes_take_nothing_and_what_is_set_aside_counts(tmp_path):
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    assert held(tmp_path).bytes < SMALL
    with open(tmp_path / "set-aside", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8 * MIB)
        os.truncate(file.fileno(), 0)
        keep_size(file.fileno(), 8 * MIB)
    assert os.stat(tmp_path / "set-aside").st_size == 0
    assert held(tmp_path).bytes >= 8 * MIB


def keep_size(descriptor, size):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(descriptor, 1, ctypes.c_long(0), ctypes.c_long(size)) != 0:
        pytest.skip(f"this file system sets nothing aside: {os.strerror(ctypes.get_errno())}")


def test_several_names_of_a_file_count_once_and_links_lead_nowhere(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    fill(outside / "large", 8 * MIB)
    fill(inside / "file")
    for number in range(20):
        os.link(inside / "file", inside / f"again-{number}")
    (inside / "link").symlink_to(outside)
    (inside / "file-link").symlink_to(outside / "large")
    found = held(inside)
    assert MIB <= found.bytes < MIB + SMALL
    assert found.files == 23


def test_attributes_of_files_count(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}").touch()
        try:
            os.setxattr(tmp_path / f"{number}", "user.a", bytes(3000))
        except OSError as error:
            pytest.skip(f"this file system keeps no attributes: {error.strerror}")
    assert 12_000 <= held(tmp_path).bytes < 12_000 + SMALL


def test_more_folders_than_can_be_looked_into_in_time_are_said(tmp_path):
    for number in range(FOLDERS_MOST):
        (tmp_path / f"{number}").mkdir()
    assert held(tmp_path, longest_s=60).hidden == ""
    (tmp_path / "one-more").mkdir()
    assert held(tmp_path, longest_s=60).hidden == f"more than {FOLDERS_MOST} folders are in it"


def test_there_is_an_end_to_counting(tmp_path):
    for number in range(200):
        (tmp_path / f"{number}").touch()
    assert held(tmp_path, files_most=100).files == 101
    assert held(tmp_path, longest_s=0.0).files == 0


def test_what_can_not_be_seen_is_said(tmp_path):
    deepest = tmp_path.joinpath(*["d"] * DEEPEST)
    deepest.mkdir(parents=True)
    assert "deep" in held(tmp_path).hidden
    deepest.rmdir()
    assert held(tmp_path).hidden == ""


@pytest.fixture
def ours():
    """A folder of an ordinary user, who we are meanwhile: root looks into everything."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder:
        if root:
            os.chown(folder, STRANGER, STRANGER)
            os.seteuid(STRANGER)
        try:
            yield Path(folder)
        finally:
            if root:
                os.seteuid(0)


def test_a_closed_folder_is_said_and_removed_by_its_owner(ours):
    folder = ours / "scratch"
    (folder / "closed" / "in").mkdir(parents=True)
    fill(folder / "closed" / "in" / "file")
    (folder / "closed" / "in").chmod(0)
    (folder / "closed").chmod(0)
    assert held(folder).hidden == "a folder in it can't be looked into"
    remove(folder)
    assert not folder.exists()


def test_a_folder_is_gone_however_deep_it_was(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    outside = fill(tmp_path / "outside")
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=descriptor)
        os.symlink(outside, "link", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    remove(folder)
    assert not folder.exists()
    assert outside.exists()


def test_files_that_are_open_and_have_no_name_are_found(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with open(tmp_path / "a" / "open", "wb") as file, open(tmp_path / "b" / "named (deleted)", "wb") as named:
        file.write(b"x" * MIB)
        named.write(b"x" * MIB)
        file.flush()
        named.flush()
        again = os.dup(file.fileno())
        assert held_without_name(tmp_path) == {}
        os.unlink(tmp_path / "a" / "open")
        assert held(tmp_path / "a").bytes < SMALL
        assert held_without_name(tmp_path) == {"a": MIB}
        os.close(again)
    assert held_without_name(tmp_path) == {}


def test_nobody_waits_at_the_end_for_a_folder_that_takes_long_to_remove():
    code = """
import asyncio, sys, time
from pathlib import Path
from fornada.node import disk_use
disk_use.remove = lambda folder: time.sleep(600)
async def end():
    removing = asyncio.create_task(disk_use.removed(Path("/nowhere")))
    await asyncio.sleep(0)
    removing.cancel()
asyncio.run(end())
"""
    subprocess.run([sys.executable, "-B", "-c", code], check=True, timeout=bound(60))


def test_a_folder_is_gone_when_its_removal_was_awaited(tmp_path: Path):
    (tmp_path / "scratch" / "in").mkdir(parents=True)
    asyncio.run(removed(tmp_path / "scratch"))
    assert not (tmp_path / "scratch").exists()


def test_a_folder_and_a_part_of_it_may_be_removed_at_the_same_time(tmp_path: Path):
    for turn in range(50):
        whole = tmp_path / str(turn)
        parts = [whole / "models" / str(number) for number in range(4)]
        for part in parts:
            (part / "folder" / "deep").mkdir(parents=True)
            (part / "folder" / "deep" / "file").touch()
        with ThreadPoolExecutor(5) as threads:
            list(threads.map(remove, [*parts, whole]))
        assert not whole.exists()
