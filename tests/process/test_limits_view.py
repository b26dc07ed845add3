"""The files of an instance's limits, mounted over /proc in a namespace of its own, while their owner writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bounds import bound

SRC = Path(__file__).parents[2] / "src"
NOBODY = 65534
VIEW = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from fornada.keeper.limits_view import LimitsView
from fornada_sdk.sandbox import mounts, syscalls
from fornada_sdk.sandbox.plan import Access
folder, uid, gid = Path(sys.argv[2]), os.geteuid(), os.getegid()
if uid:
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
    for name, text in (("setgroups", "deny"), ("gid_map", f"{gid} {gid} 1"), ("uid_map", f"{uid} {uid} 1")):
        Path("/proc/self", name).write_text(text)
view = LimitsView(folder, "m", memory_bytes=512 << 20, cpus=1)
copies = [mounts.detach(str(path), Access.READ) for path in (view.meminfo, view.cpuinfo)]
syscalls.unshare(syscalls.CLONE_NEWNS)
mounts.make_private()
for copy, target in zip(copies, ("/proc/meminfo", "/proc/cpuinfo")):
    syscalls.move_mount(copy, syscalls.AT_FDCWD, target)
def used():
    lines = dict(line.split(":") for line in open("/proc/meminfo"))
    return int(lines["MemTotal"].split()[0]) - int(lines["MemFree"].split()[0])
assert used() == 0
view.rewrite(100 << 20)
assert used() == 100 << 10, used()
assert open("/proc/cpuinfo").read().count("processor\\t") == 1
try:
    open("/proc/meminfo", "r+")
    raise AssertionError("it could be written")
except OSError as error:
    assert error.strerror == "Read-only file system", error
view.close()
assert used() == 100 << 10, "what is mounted stays"
assert not list(folder.iterdir())
print("seen")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="root plays both parts")
@pytest.mark.parametrize("uid", [0, NOBODY], ids=["root", "user"])
def test_an_instance_sees_its_limits_and_what_it_uses_as_they_are_rewritten(tmp_path: Path, uid: int):
    folder = Path("/dev/shm") / f"fornada-test-{os.getpid()}"
    folder.mkdir(mode=0o700)
    os.chown(folder, uid, uid)
    try:
        done = subprocess.run(
            ["/usr/bin/python3" if uid else sys.executable, "-I", "-c", VIEW, str(SRC), str(folder)],
            user=uid,
            group=uid,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=bound(30),
        )
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    if uid and "No module named" in done.stderr:
        pytest.skip("an ordinary user can't reach this tree")
    assert done.stdout == "seen\n", done.stderr
