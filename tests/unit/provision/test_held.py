"""One holder at a time, and no file left when nobody holds it."""

import asyncio
import os
import subprocess
import sys

from fornada.node.provision.held import held, held_if_free
from fornada.node.provision.prune import sweep
from tests.bounds import bound, count

RIVAL = """
import asyncio, sys
from pathlib import Path
from fornada.node.provision.held import held, held_if_free

async def main(lock, book, turns):
    for _ in range(turns):
        async with held(lock):
            with open(book, "x"):   # fails where somebody else is inside
                pass
            await asyncio.sleep(0)
            book.unlink()
        with held_if_free(lock) as free:
            if free:
                with open(book, "x"):
                    pass
                book.unlink()

asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
"""


def test_rivals_are_never_inside_together_although_the_file_comes_and_goes(tmp_path):
    turns = count(150, long=1500)
    argv = [sys.executable, "-c", RIVAL, str(tmp_path / "locks/a"), str(tmp_path / "book"), str(turns)]
    rivals = [subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for rival in rivals:
        _, said = rival.communicate(timeout=bound(90))
        assert rival.returncode == 0, said
    assert os.listdir(tmp_path / "locks") == []


async def test_who_waits_on_a_file_that_was_removed_gets_the_next_one(tmp_path):
    lock = tmp_path / "a"
    inside = 0

    async def one() -> None:
        nonlocal inside
        async with held(lock):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.001)
            inside -= 1

    async with asyncio.timeout(bound(20)):
        await asyncio.gather(*(one() for _ in range(20)))
    assert not lock.exists()


def test_a_held_lock_stays_held(tmp_path):
    with held_if_free(tmp_path / "a") as free:
        assert free
        with held_if_free(tmp_path / "a") as second:
            assert not second
        assert (tmp_path / "a").exists(), "who doesn't hold it doesn't remove it"
    assert not (tmp_path / "a").exists()


def test_what_a_kill_left_goes_at_the_next_start(tmp_path):
    locks = tmp_path / "run/locks"
    locks.mkdir(parents=True)
    (locks / "artifact-x").touch()
    with held_if_free(locks / "bundle-y"):
        sweep(tmp_path, locks=locks)
        assert os.listdir(locks) == ["bundle-y"]
