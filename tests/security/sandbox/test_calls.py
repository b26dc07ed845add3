"""The system calls themselves: what they do, and what they say when they can't."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fornada_sdk.sandbox import architecture, landlock, syscalls
from tests.security.sandbox.cage import SRC


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-B", "-c", code], env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: syscalls.setns(-1, 0), "setns"),
        (lambda: syscalls.umount2("/nowhere", 0), "umount2"),
        (lambda: syscalls.mount(None, "/nowhere", None, syscalls.MS_REC | syscalls.MS_PRIVATE), "mount"),
        (lambda: syscalls.open_tree(syscalls.AT_FDCWD, "/nowhere", syscalls.OPEN_TREE_CLOEXEC), "open_tree"),
        (lambda: syscalls.move_mount(-1, -1, "x"), "move_mount"),
        (lambda: syscalls.mount_setattr(-1, set_flags=1), "mount_setattr"),
        (lambda: syscalls.prctl(12345), "prctl"),
        (lambda: syscalls.new_mount("nowhere", {}, 0), "fsopen"),
        (lambda: syscalls.landlock_restrict_self(-1), "landlock_restrict_self"),
        (lambda: syscalls.landlock_add_path(-1, 1, -1), "landlock_add_rule"),
        (lambda: syscalls.seccomp_filter(b""), "seccomp"),
        (lambda: syscalls.pivot_root("/nowhere", "/nowhere"), "pivot_root"),
    ],
)
def test_a_call_that_fails_is_named(call, name: str):
    with pytest.raises(OSError, match=rf"{name}: ") as failed:
        call()
    assert failed.value.errno
    assert str(failed.value).count("[Errno") == 1


def test_a_process_can_name_itself_close_what_it_holds_and_take_in_orphans():
    code = """
import json, os
from fornada_sdk.sandbox import syscalls
syscalls.set_name("a name that is too long")
held = [os.dup(0) for _ in range(5)]
syscalls.close_from(held[1])
open_ = [number for number in held if os.path.exists(f'/proc/self/fd/{number}')]
syscalls.become_subreaper()
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.read(read, 1); os._exit(os.getppid() == int(os.environ.get('PARENT', '0')))
    os._exit(0)
os.wait(); os.write(write, b'x')
code = os.waitstatus_to_exitcode(os.wait()[1])
print(json.dumps([open('/proc/self/comm').read().strip(), open_ == held[:1], code]))
"""
    assert json.loads(run(code)) == ["a name that is", True, 0]


def test_capabilities_are_read_and_cleared():
    code = """
from fornada_sdk.sandbox import identity, syscalls
before = syscalls.capabilities()
identity.drop_capabilities()
print(before, syscalls.capabilities())
"""
    before, after = map(int, run(code).split())
    (effective,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff")]
    assert before == int(effective.split()[1], 16)
    assert after == 0


def test_landlocks_version_is_the_kernels():
    assert 0 <= landlock.version() < 100
    assert landlock.handled(1) == (1 << 13) - 1
    assert [landlock.handled(version).bit_length() for version in (2, 3, 4, 5, 6, 9)] == [14, 15, 15, 16, 16, 17]


def test_a_processor_that_isnt_known_is_named(monkeypatch: pytest.MonkeyPatch):
    class Machine:
        machine = "riscv64"

    monkeypatch.setattr(os, "uname", Machine)
    with pytest.raises(OSError, match="riscv64"):
        architecture.own.__wrapped__()
