"""What docs/how-to/isolation.md says that a model notices at full and namespaces, asked by a model of a whole node."""

from collections.abc import Callable
from typing import Any

import pytest

from fornada.keeper.levels import Level
from tests.harness.bundles import archive
from tests.harness.node import Node

MIB = 1024**2
MODEL_TOML = """
[resources]
memory = "200MiB"
cpus = 1
pids = 16
scratch = "64MiB"
"""
MODEL = """
import errno, os, signal, socket

def errno_of(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    return "none"

def meminfo():
    with open("/proc/meminfo") as file:
        return int(file.readline().split()[1]) * 1024

def processors():
    with open("/proc/cpuinfo") as file:
        return sum(line.startswith("processor") for line in file)

def room(path):
    status = os.statvfs(path)
    return status.f_blocks * status.f_frsize

def forks():
    children = []
    try:
        while len(children) < 100:
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    except OSError:
        pass
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return len(children)

def fill(path, mebibytes):
    with open(path, "wb", buffering=0) as file:
        for _ in range(mebibytes):
            file.write(bytes(1024 * 1024))
    os.unlink(path)

def handle_request(request, context):
    scratch = str(context.scratch)
    return {
        "who": [os.getuid(), os.getgid(), os.uname().nodename, os.getpid(), context.pid],
        "processes": sorted(name for name in os.listdir("/proc") if name.isdigit()),
        "memory": [meminfo(), int(os.environ["MODEL_MEMORY_BYTES"])],
        "processors": processors(),
        "threads": os.environ["OMP_NUM_THREADS"],
        "at home": [os.getcwd() == scratch, os.environ["HOME"] == scratch, os.environ["TMPDIR"] == scratch],
        "rooms": [room("/tmp"), room("/dev/shm")],
        "written": [errno_of(fill, path, 1) for path in ("/tmp/a", "/dev/shm/a", scratch + "/a")],
        "read only": [errno_of(os.mkdir, path) for path in ("/usr/a", "/etc/a", os.path.dirname(__file__) + "/a")],
        "not there": [errno_of(os.listdir, path) for path in ("/home", "/var", "/sys/kernel")],
        "the root": errno_of(os.listdir, "/"),
        "sockets": [errno_of(socket.socket, family) for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)],
        "too large": errno_of(fill, scratch + "/a", 65),
        "forks": forks(),
        "own signals": [os.kill(os.getpid(), signal.SIGKILL), os.kill(os.getpid(), signal.SIGALRM)],
    }
"""


@pytest.fixture
def said(node: Node, fresh_name: Callable[[], str]) -> dict[str, Any]:
    """By the model."""
    if node.record["isolation"] not in (Level.FULL, Level.NAMESPACES):
        pytest.skip(f"this machine gives {node.record['isolation']}")
    name = fresh_name()
    node.deploy(name, archive({"model.py": MODEL, "model.toml": MODEL_TOML}))
    answer: dict[str, Any] = node.ask(name, {})
    answer["pids outside"] = node.pids(name)
    return answer


def test_a_model_notices_what_the_page_says(said: dict[str, Any]):
    uid, gid, host, inside, outside = said["who"]
    assert (uid, gid, host, inside) == (1000, 1000, "model", 1)
    assert [outside] == said["pids outside"]
    assert said["processes"] == ["1"]
    assert said["memory"] == [200 * MIB, 200 * MIB]
    assert (said["processors"], said["threads"]) == (1, "1")
    assert said["at home"] == [True, True, True]
    assert said["rooms"] == [64 * MIB, 64 * MIB]
    assert said["written"] == ["none", "none", "none"]
    assert set(said["read only"]) <= {"EROFS", "EACCES"}
    assert set(said["not there"]) <= {"ENOENT", "EACCES"}
    assert said["the root"] == "EACCES"
    assert said["sockets"] == ["none", "EAFNOSUPPORT", "EAFNOSUPPORT"]
    assert said["too large"] == "EFBIG"
    assert 10 <= said["forks"] < 16
    assert said["own signals"] == [None, None]
