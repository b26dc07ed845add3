"""An instance is its parent's own child, ends with it, and is process 1 of what it starts."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bounds import bound
from tests.harness.processes import seen
from tests.harness.waiting import until
from tests.security.sandbox.cage import SRC, Cage

TIED = """
import ctypes, json, os
number = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(number), 0, 0, 0)
print(json.dumps([os.getpid(), os.getppid(), number.value]))
"""


def test_it_is_process_one_and_tied_to_its_parent_whatever_it_has_become(caged: Cage):
    assert caged.run(TIED).said == [1, 0, signal.SIGKILL]
    assert caged.run(TIED, without=("users",)).said == [1, 0, signal.SIGKILL]


def test_it_doesnt_start_for_a_parent_that_has_gone(caged: Cage):
    result = caged.run("print('alive')", orphan=True)
    assert result.out == ""
    assert result.code == 127


PARENT = """
import os, sys, time
from fornada_sdk.sandbox import enter, forking, plan, syscalls
from fornada_sdk.sandbox.plan import Namespace
identity = plan.Identity(200_031, 200_031) if os.geteuid() == 0 else None
read, write = os.pipe()
pid = forking.fork_first()
if pid == 0:
    if os.fork() == 0:
        time.sleep(60); os._exit(0)
    enter.enter(plan.Plan(namespaces=frozenset([Namespace.IPC]), identity=identity, users=plan.Users() if sys.argv[1] == 'users' else None), ())
    os.write(write, b'ready'); time.sleep(60); os._exit(0)
os.read(read, 5)
print(pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace of one's own needs root")
@pytest.mark.parametrize("users", ["users", "no"])
def test_a_killed_parent_takes_it_and_what_it_started_along(users: str):
    with subprocess.Popen([sys.executable, "-B", "-c", PARENT, users], stdout=subprocess.PIPE, env={"PYTHONPATH": str(SRC)}) as parent:
        assert parent.stdout
        child = seen(int(parent.stdout.readline()))
        below = [int(word) for word in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()]
        family = [child, *map(seen, below)]
        assert len(family) == 2
        parent.kill()
        until(lambda: not any(process.alive for process in family), within_s=bound(10), what="the end of an instance")


FORKING = """
import json, os, signal, threading
from fornada_sdk.sandbox import forking
found = {}
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
before = len(os.listdir('/proc/self/fd'))
for _ in range(3):
    read, write = os.pipe()
    pid = forking.fork_first()
    if pid == 0:
        os.write(write, json.dumps([os.getpid(), os.getppid(), len(signal.pthread_sigmask(signal.SIG_BLOCK, []))]).encode()); os._exit(3)
    os.close(write)
    found['child'] = json.loads(os.read(read, 100)); os.close(read)
    found['code'] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
found['left open'] = len(os.listdir('/proc/self/fd')) - before
found['mask'] = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])]
pid = os.fork()
if pid == 0: os._exit(0 if os.getpid() > 1 else 1)
found['later'] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
thread = threading.Thread(target=lambda: found.update(thread='ran')); thread.start(); thread.join()
print(json.dumps(found))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace of one's own needs root")
def test_forking_a_first_process_leaves_the_caller_as_it_was():
    done = subprocess.run([sys.executable, "-B", "-c", FORKING], env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True)
    found = json.loads(done.stdout or "null")
    assert found, done.stderr
    pid, parent, blocked = found.pop("child")
    assert (pid, parent) == (1, 0)
    assert blocked > 50, "no signal may run the caller's handlers in the child"
    assert found == {"code": 3, "left open": 0, "mask": [signal.SIGUSR1], "later": 0, "thread": "ran"}


def test_whoever_may_not_make_a_pid_namespace_is_told_and_can_fork_on(user_cage: Cage):
    code = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from fornada_sdk.sandbox import forking
try: forking.fork_first()
except PermissionError as error: print(json.dumps(str(error)), flush=True)
pid = os.fork()
if pid == 0: os._exit(0)
os.waitpid(pid, 0)
"""
    done = subprocess.run(
        ["setpriv", f"--reuid={user_cage.user}", "--clear-groups", user_cage.python, "-B", "-c", code, str(user_cage.place)]
        if os.geteuid() == 0
        else [user_cage.python, "-B", "-c", code, str(user_cage.place)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == "[Errno 1] setns: Operation not permitted"


def test_a_process_with_an_orphan_may_reap_it(caged: Cage):
    code = """
import json, os, time
if os.fork() == 0:
    if os.fork() == 0: os._exit(5)
    os._exit(4)
print(json.dumps(sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2))))
"""
    assert caged.run(code).said == [4, 5]


def test_a_step_that_fails_is_named():
    code = """
from fornada_sdk.sandbox import enter, plan
for descriptors in (), (999,):
    try: enter.enter(plan.Plan(cgroups=(0,)), descriptors)
    except enter.EnterFailed as failed: print(failed)
"""
    done = subprocess.run([sys.executable, "-B", "-c", code], env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "the plan counts other than the 0 descriptors that came with it",
        "can't join the cgroups: Bad file descriptor",
    ], done.stderr
