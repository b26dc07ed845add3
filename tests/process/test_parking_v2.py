"""Parking where the machine freezes: a group of version 2, and nothing of the keeper's but its books."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fornada.keeper.cgroups import files
from fornada.keeper.cgroups.v2 import GroupV2
from fornada.keeper.loop import Loop, Timer
from fornada.keeper.parking import Parking
from fornada.keeper.records import InstanceChild, Life
from tests.harness.waiting import until

TOPS = [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]
TOP = next((top for top in TOPS if (top / "cgroup.procs").exists() and os.access(top, os.W_OK)), None)
pytestmark = pytest.mark.skipif(TOP is None or os.geteuid() != 0, reason="no cgroup version 2 is mounted that we may divide")
SPIN = "os.fork()\nwhile True: pass"


class Later(Loop):
    """The keeper's loop, which nothing here waits for."""

    def __init__(self) -> None:
        """Watches nothing."""

    def later(self, delay_s: float, call: Any) -> Timer:
        return Timer(call)


@pytest.fixture
def group() -> Iterator[GroupV2]:
    assert TOP is not None
    folder = TOP / f"fornada-test-{uuid.uuid4().hex[:12]}"
    folder.mkdir()
    group = GroupV2("a", folder)
    yield group
    group.kill()
    until(group.remove, within_s=5, what="the group is removed")


@pytest.fixture
def spinning(group: GroupV2) -> Iterator["subprocess.Popen[bytes]"]:
    """Two processes of the group that never rest."""
    (join,) = group.joins()
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", f"import os; os.write({join}, b'0')\n{SPIN}"], pass_fds=[join])
    os.close(join)
    until(lambda: len(group.pids()) == 2, within_s=5, what="both are there")
    yield process
    process.kill()
    process.wait(5)


def child(group: GroupV2, pid: int) -> Any:
    made = InstanceChild.__new__(InstanceChild)
    made.name, made.pid, made.outer, made.life = "a", pid, pid, Life.RUNNING
    made.enclosure = SimpleNamespace(group=group)  # type: ignore[assignment]
    return made


def is_frozen(group: GroupV2) -> bool:
    return files.table(group._folder / "cgroup.events")["frozen"] == 1


def test_the_kernel_freezes_the_group_and_a_kill_gets_through(group: GroupV2, spinning: "subprocess.Popen[bytes]"):
    parking, one = Parking(Later()), child(group, spinning.pid)
    parking.carries_out(one, signal.SIGSTOP)
    until(lambda: is_frozen(group), within_s=5, what="it is frozen")
    assert parking.carries_out(one, signal.SIGCONT)
    until(lambda: not is_frozen(group), within_s=5, what="it goes on")
    parking.carries_out(one, signal.SIGSTOP)
    until(lambda: is_frozen(group), within_s=5, what="it is frozen again")
    os.kill(spinning.pid, signal.SIGKILL)
    assert spinning.wait(5) == -signal.SIGKILL


def test_a_signal_that_is_to_be_heard_finds_it_running(group: GroupV2, spinning: "subprocess.Popen[bytes]"):
    parking, one = Parking(Later()), child(group, spinning.pid)
    parking.carries_out(one, signal.SIGSTOP)
    until(lambda: is_frozen(group), within_s=5, what="it is frozen")
    assert not parking.carries_out(one, signal.SIGTERM), "it has still to be sent"
    os.kill(spinning.pid, signal.SIGTERM)
    assert spinning.wait(5) == -signal.SIGTERM
