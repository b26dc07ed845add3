"""What is tried on the real kernel: as root, as a user, and where rights have been taken away."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fornada.keeper import probes
from fornada.keeper.cgroups.tree import PROBE_PREFIX
from fornada.keeper.levels import Feature
from tests.bounds import bound
from tests.harness.processes import descendants
from tests.harness.waiting import until

SRC = Path(__file__).parents[2] / "src"
LOOK = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from fornada.keeper import levels, probes
from fornada_sdk.sandbox import architecture, identity, syscalls
def look():
    facts = probes.look()
    refused = {feature.name: why for feature, why in facts.refused.items()}
    missing = [str(line) for line in levels.missing(facts, levels.Level.FULL)]
    print(json.dumps({"level": levels.best(facts), "refused": refused, "missing": missing, "privileged": facts.privileged,
                      "contained": facts.contained, "ids": facts.subordinate_ids, "controllers": facts.controllers}))
def become(uid):
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
"""
NOBODY = 65534
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take rights away")
USERS_PYTHON = "/usr/bin/python3"


def run(program: str, *, python: str = sys.executable) -> Any:
    done = subprocess.run(
        [python, "-I", "-c", LOOK + program, str(SRC)], capture_output=True, text=True, timeout=bound(60), stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def python() -> str:
    """An interpreter that an ordinary user reaches, and this tree."""
    code = f"import sys; sys.path.insert(0, {str(SRC)!r}); import fornada.keeper.probes; assert sys.version_info >= (3, 11)"
    if subprocess.run([USERS_PYTHON, "-c", code], user=NOBODY, group=NOBODY, capture_output=True).returncode:
        pytest.skip("an ordinary user can't reach an interpreter and this tree")
    return USERS_PYTHON


def test_nothing_of_it_stays():
    def around() -> tuple[str, list[str], list[str]]:
        namespaces = [os.readlink(f"/proc/self/ns/{name}") for name in sorted(os.listdir("/proc/self/ns"))]
        return Path("/proc/self/mountinfo").read_text(), namespaces, os.listdir("/proc/self/fd")

    def probed() -> set[Path]:
        return {path for path in Path("/sys/fs/cgroup").glob(f"**/{PROBE_PREFIX}*") if path.is_dir()}

    earlier = probed()
    before, others = around(), {process.pid for process in descendants(os.getpid())}
    facts = probes.look()
    assert around() == before
    assert {process.pid for process in descendants(os.getpid())} <= others
    assert Feature.SECCOMP not in facts.refused, "or this is a machine on which no model can be confined"
    # Another test's node may be looking just now; what is left behind stays.
    until(lambda: probed() <= earlier, within_s=10, what=f"no cgroup of a probe but {earlier}")


@ROOT_ONLY
def test_root_lacks_nothing_but_perhaps_cgroups():
    found = run("look()")
    assert found["privileged"]
    assert set(found["refused"]) <= {"CGROUPS"}
    assert found["level"] == ("namespaces" if found["refused"] else "full")


@ROOT_ONLY
def test_a_user_needs_a_user_namespace_and_gets_the_rest_by_it(python: str):
    found = run(f"become({NOBODY}); look()", python=python)
    assert not found["privileged"]
    assert set(found["refused"]) == {"CGROUPS"}
    assert found["level"] == "namespaces"
    assert f"may not be written by uid {NOBODY}" in found["missing"][0]


@ROOT_ONLY
def test_without_user_namespaces_landlock_is_left(python: str):
    """The limit is set in a user namespace of the test's own, and asked for by an ordinary user of it."""
    found = run(
        f"""
there, told = os.pipe()
mapped, say_mapped = os.pipe()
child = os.fork()
if child == 0:
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    os.write(told, b"x")
    os.read(mapped, 1)
    become(0)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    become({NOBODY})
    look()
    sys.stdout.flush()
    os._exit(0)
os.read(there, 1)
for name in ("uid_map", "gid_map"):
    with open(f"/proc/{{child}}/{{name}}", "w") as file:
        file.write("0 0 65536")
os.write(say_mapped, b"x")
assert os.waitpid(child, 0)[1] == 0
""",
        python=python,
    )
    assert found["refused"]["USER_NAMESPACE"] == "unshare: No space left on device"
    assert found["refused"]["MOUNT_NAMESPACE"] == ""
    assert found["level"] == "landlock"
    assert "user.max_user_namespaces=10000" in found["missing"][0]


@ROOT_ONLY
def test_a_filter_like_a_containers_leaves_landlock_and_is_noticed():
    found = run(
        """
import struct
refused = [architecture.own().numbers[name] for name in
           ("unshare", "setns", "mount", "pivot_root", "open_tree", "move_mount", "mount_setattr", "clone3")]
program = [(0x20, 0, 0, 0)]  # load the number
program += [(0x15, len(refused) - at, 0, number) for at, number in enumerate(refused)]  # equal: to the end
program += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | 1)]  # allow; errno 1
identity.drop_capabilities()
identity.refuse_new_privileges()
syscalls.seccomp_filter(b"".join(struct.pack("=HBBI", *instruction) for instruction in program))
look()
"""
    )
    assert not found["privileged"] and found["contained"]
    assert found["refused"]["USER_NAMESPACE"] == "unshare: Operation not permitted"
    assert found["level"] == "landlock"
    assert "--security-opt seccomp=FILE" in found["missing"][0]


@ROOT_ONLY
def test_a_covered_proc_leaves_landlock_to_a_user_and_is_named(python: str):
    found = run(
        f"""
syscalls.unshare(syscalls.CLONE_NEWNS)
syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
syscalls.mount("/dev/null", "/proc/interrupts", None, 4096)
become({NOBODY})
look()
""",
        python=python,
    )
    assert found["refused"]["OWN_PROC"] == "mount: Operation not permitted"
    assert found["contained"] and found["level"] == "landlock"
    assert "systempaths=unconfined" in found["missing"][0]


@ROOT_ONLY
def test_cgroups_that_are_mounted_read_only_are_named():
    found = run(
        """
syscalls.unshare(syscalls.CLONE_NEWNS)
syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
for line in open("/proc/self/mountinfo").read().splitlines():
    point = line.split()[4]
    if " - cgroup" in line:
        syscalls.mount(None, point, None, 4096 | 32 | 1)
look()
"""
    )
    assert found["level"] == "namespaces"
    assert "is mounted read-only; a container's cgroups" in found["missing"][0]


def test_a_probe_that_hangs_is_given_up_and_leaves_no_process():
    before = descendants(os.getpid())

    def hangs(tell: probes.Tell) -> None:
        tell("first", "")
        time.sleep(60)

    said, fault = probes._in_child(hangs, 0.3)
    assert said == {"first": ""}
    assert fault == "no answer from the kernel in 0.3 s"
    assert descendants(os.getpid()) == before


def test_a_probe_that_breaks_is_not_taken_for_one_that_works():
    def breaks(tell: probes.Tell) -> None:
        raise RuntimeError("a bug")

    assert probes._in_child(breaks, 5) == ({}, "the probe broke (exit code 1)")
    assert probes._in_child(lambda tell: os.kill(os.getpid(), signal.SIGKILL), 5) == ({}, "the probe broke (signal 9)")
