"""Bounds that hold for one instance and leave its neighbours theirs."""

import os
import uuid
from pathlib import Path

import pytest

from tests.security.sandbox.cage import Cage

FILL = """
import errno, json, sys
done = 0
try:
    with open(sys.argv[1], 'wb', buffering=0) as file:
        while done < 64 << 20: done += file.write(bytes(1 << 20))
except OSError as error: print(json.dumps([errno.errorcode[error.errno], done]))
else: print(json.dumps(['all', done]))
"""
MANY = """
import errno, json, os
try:
    for number in range(100_000): os.close(os.open(f'/tmp/{number}', os.O_CREAT | os.O_WRONLY))
except OSError as error: print(json.dumps([errno.errorcode[error.errno], number]))
"""
FORKS = """
import errno, json, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_DFL)
forked = 0
try:
    while forked < 200:
        if os.fork() == 0: time.sleep(30); os._exit(0)
        forked += 1
    why = 'all'
except OSError as error: why = errno.errorcode[error.errno]
print(json.dumps([why, forked]), flush=True)
if 'stay' in sys.argv: time.sleep(30)
os.kill(-1, 9)
"""


@pytest.mark.parametrize("path", ["/tmp/full", "/dev/shm/full"])
def test_folders_in_memory_have_a_size(caged: Cage, path: str):
    why, done = caged.run(FILL, path, temporary_bytes=4 << 20, shared_bytes=4 << 20).said
    assert why == "ENOSPC"
    assert done == 4 << 20
    assert caged.run(FILL, path, temporary_bytes=70 << 20, shared_bytes=70 << 20).said[0] == "all"


def test_the_root_has_a_size_and_a_number_of_files(caged: Cage):
    big = {"kind": "text", "path": "/etc/big", "content": "x" * (5 << 20)}
    assert caged.run("", entries=[big]).failed == "can't build the root: No space left on device: /etc/big"


def test_folders_in_memory_hold_a_bounded_number_of_files(caged: Cage):
    why, number = caged.run(MANY).said
    assert why == "ENOSPC"
    assert number < 65536


def test_a_bound_of_processes_is_each_instances_own(caged: Cage):
    results = caged.run_all(FORKS, "stay", copies=3, limits={"processes": 20})
    assert [result.out.strip() for result in results] == ['["EAGAIN", 19]'] * 3
    assert caged.run(FORKS, limits={"processes": 0}).said == ["all", 200]


def test_without_a_user_namespace_the_bound_is_everybodys_of_that_uid(caged: Cage):
    first, second = caged.run_all(FORKS, "stay", copies=2, limits={"processes": 20}, without=("users",))
    assert second.out.strip() == '["EAGAIN", 0]', "this is what the user namespace is needed for"
    assert first.out.startswith('["EAGAIN"')


@pytest.mark.parametrize(
    ("limits", "code", "what"),
    [
        ({"open_files": 20}, "import os\ntry:\n while 1: os.dup(0)\nexcept OSError as e: print(e.errno)", "24"),
        ({"memory_bytes": 300 << 20}, "try: bytearray(400 << 20)\nexcept MemoryError: print(1)", "1"),
        ({"file_bytes": 1 << 20}, "import signal\nsignal.signal(25, signal.SIG_IGN)\n" + FILL, '["EFBIG", 1048576]'),
        ({}, "import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[1])", "0"),
        ({"nice": 3}, "import os; print(os.nice(0))", str(min(os.nice(0) + 3, 19))),
    ],
    ids=["files", "memory", "size", "core", "nice"],
)
def test_limits_hold(caged: Cage, limits: dict, code: str, what: str):
    assert caged.run(code, "/tmp/full", limits=limits).out.strip() == what


def test_a_limit_cant_be_raised_again(caged: Cage):
    code = """
import json, resource
try: resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
except ValueError as error: print(json.dumps(str(error)))
"""
    assert "maximum limit" in caged.run(code, limits={"open_files": 20}).said


CGROUPS = Path("/sys/fs/cgroup")


def test_it_joins_the_cgroups_that_are_handed_over(root_cage: Cage):
    parent = CGROUPS / "pids" if (CGROUPS / "pids" / "cgroup.procs").exists() else CGROUPS
    group = parent / f"fornada-test-{uuid.uuid4().hex[:12]}"
    try:
        group.mkdir()
        (group / "pids.max").write_text("10")
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"no cgroup with a bound on processes here: {error}")
    try:
        procs = [str(group / "cgroup.procs")]
        assert root_cage.run(FORKS, cgroups=procs).said == ["EAGAIN", 9]
        code = "import json; print(json.dumps(sorted({line.rstrip().split(':', 2)[2] for line in open('/proc/self/cgroup')})))"
        assert root_cage.run(code, cgroups=procs).said == ["/"]
        assert any(group.name in path for path in root_cage.run(code, cgroups=procs, without=("cgroups",)).said)
    finally:
        group.rmdir()
