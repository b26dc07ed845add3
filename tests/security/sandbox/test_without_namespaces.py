"""The level of a machine that allows no namespaces: Landlock, the strict filter and limits are all there is."""

import os
import socket

import pytest

from fornada_sdk.sandbox import landlock
from tests.security.sandbox.cage import DIES_S, Cage
from tests.security.sandbox.test_walls import READ, WRITE, attempt

pytestmark = pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")
LEVEL = {"level": "landlock"}


def test_a_file_that_isnt_listed_cant_be_opened(caged: Cage):
    secret = caged.file(caged.folder("secrets"), "token", "secret")
    assert caged.run(READ, str(secret), **LEVEL).said == "EACCES"
    assert caged.run(READ, str(secret), without=("landlock",), **LEVEL).said == "secret"
    assert caged.run(READ, str(secret), files=[(secret, "read")], **LEVEL).said == "secret"


def test_what_is_listed_for_reading_cant_be_written(caged: Cage):
    folder = caged.folder("bundle")
    path = caged.file(folder, "weights", "")
    assert caged.run(WRITE, str(path), files=[(folder, "read")], **LEVEL).said == "EACCES"
    cut = attempt("os.truncate(sys.argv[1], 0); return 'cut'")
    remove = attempt("os.unlink(sys.argv[1]); return 'removed'")
    assert caged.run(cut, str(path), files=[(folder, "read")], **LEVEL).said == "EPERM", "by the filter"
    scoped = caged.run(cut, str(path), files=[(folder, "read")], variant="scoped", **LEVEL).said
    assert scoped == ("EACCES" if landlock.version() >= 3 else "cut")
    empty = attempt("os.open(sys.argv[1], os.O_RDONLY | os.O_TRUNC); return 'emptied'")
    assert caged.run(empty, str(path), files=[(folder, "read")], **LEVEL).said == "EPERM"
    assert caged.run(remove, str(path), files=[(folder, "read")], **LEVEL).said == "EACCES"
    assert caged.run(WRITE, str(path), files=[(folder, "write")], **LEVEL).said == 4
    assert caged.run(remove, str(path), files=[(folder, "write")], **LEVEL).said == "removed"


@pytest.mark.parametrize("path", ["/tmp", "/dev/shm", "/home", "/", "/proc", "/etc"])
def test_what_is_everybodys_cant_be_listed(caged: Cage, path: str):
    assert caged.run(attempt("return os.listdir(sys.argv[1])"), path, **LEVEL).said == "EACCES"


def test_it_reads_nothing_of_other_processes(caged: Cage):
    code = attempt("return open(f'/proc/{sys.argv[1]}/' + sys.argv[2], 'rb').read().decode()")
    for name in ("environ", "cmdline", "status", "maps"):
        assert caged.run(code, "NEIGHBOUR", name, neighbour=True, **LEVEL).said == "EACCES"
    assert caged.run(code, "NEIGHBOUR", "cmdline", neighbour=True, without=("landlock",), **LEVEL).said
    assert caged.run(code, "self", "status", **LEVEL).said


@pytest.mark.parametrize("variant", ["strict", "scoped"])
def test_it_cant_signal_its_neighbours(caged: Cage, variant: str):
    if variant == "scoped" and landlock.version() < landlock.SCOPES_SINCE:
        pytest.skip("this Landlock keeps no signals inside")
    for body in (
        "os.kill(int(sys.argv[1]), 15); return 'sent'",
        "import signal; signal.pidfd_send_signal(os.pidfd_open(int(sys.argv[1])), 15); return 'sent'",
    ):
        result = caged.run(attempt(body), "NEIGHBOUR", neighbour=True, variant=variant, **LEVEL)
        assert (result.said, result.neighbour) == ("EPERM", None)
    shot = attempt("os.kill(int(sys.argv[1]), 15); return 'sent'")
    assert caged.run(shot, "NEIGHBOUR", neighbour=True, dies_s=DIES_S, without=("seccomp", "landlock"), **LEVEL).neighbour == -15


def test_a_files_owner_is_no_way_to_signal_somebody(caged: Cage):
    code = attempt("""
import fcntl, socket
ours, theirs = socket.socketpair()
fcntl.fcntl(ours, fcntl.F_SETSIG, 15)
fcntl.fcntl(ours, fcntl.F_SETOWN, int(sys.argv[1]))
fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)
theirs.send(b'x')
return 'sent'
""")
    held = caged.run(code, "NEIGHBOUR", neighbour=True, **LEVEL)
    assert (held.said, held.neighbour) == ("EPERM", None)
    # Only for a process with a mailbox for it: kernels that scope signals refuse to deliver, ours refuses to ask.
    assert caged.run(code, "NEIGHBOUR", neighbour=True, dies_s=DIES_S, without=("seccomp", "landlock"), **LEVEL).neighbour == -15


def test_it_may_end_what_it_started_where_landlock_keeps_signals_inside(caged: Cage):
    if landlock.version() < landlock.SCOPES_SINCE:
        pytest.skip("this Landlock keeps no signals inside")
    code = attempt("""
import subprocess
child = subprocess.Popen(['/bin/sleep', '60']); child.terminate(); return child.wait(timeout=30)
""")
    assert caged.run(code, variant="scoped", **LEVEL).said == -15
    itself = attempt("""
import signal
signal.signal(10, lambda *_: None); os.kill(os.getpid(), 10); signal.raise_signal(10); return True
""")
    assert caged.run(itself, variant="strict", **LEVEL).said is True


def test_it_slows_no_neighbour_down(caged: Cage):
    for body in (
        "import resource; resource.prlimit(int(sys.argv[1]), resource.RLIMIT_CPU, (1, 1)); return 'done'",
        "os.sched_setaffinity(int(sys.argv[1]), {0}); return 'done'",
        "os.setpriority(os.PRIO_PROCESS, int(sys.argv[1]), 19); return 'done'",
    ):
        assert caged.run(attempt(body), "NEIGHBOUR", neighbour=True, **LEVEL).said == "EPERM"
        assert caged.run(attempt(body), "NEIGHBOUR", neighbour=True, without=("seccomp",), **LEVEL).said == "done"


def test_it_has_no_sockets_but_pairs(caged: Cage):
    code = attempt("""
import socket
pair = socket.socketpair(); pair[0].send(b'x'); assert pair[1].recv(1) == b'x'
return socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=5) and 'connected'
""")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert caged.run(code, port, **LEVEL).said == "EAFNOSUPPORT"
        assert caged.run(code, port, without=("seccomp", "landlock"), **LEVEL).said == "connected"
        if landlock.version() >= landlock.TCP_SINCE:
            assert caged.run(code, port, without=("seccomp",), **LEVEL).said == "EACCES", "Landlock is the second wall"


def test_a_model_still_works(caged: Cage):
    scratch = caged.folder("scratch")
    code = """
import json, os, subprocess, sys, threading, tempfile
tempfile.tempdir = sys.argv[1]
with tempfile.NamedTemporaryFile() as file: file.write(b'x')
thread = threading.Thread(target=print, args=('"thread"',)); thread.start(); thread.join()
assert subprocess.run(['/bin/sh', '-c', 'exit 3']).returncode == 3
assert open('/proc/meminfo').read() and open('/proc/self/maps').read() and os.urandom(4)
status = dict(line.rstrip('\\n').split(':\\t', 1) for line in open('/proc/self/status'))
print(json.dumps([os.getuid(), status['CapEff'], status['NoNewPrivs'], status['Seccomp']]))
"""
    result = caged.run(code, str(scratch), files=[(scratch, "write")], **LEVEL)
    assert result.out.splitlines() == ['"thread"', f'[{caged.uid}, "{"0" * 16}", "1", "2"]'], result


def test_a_grant_for_a_path_that_isnt_there_is_named(caged: Cage):
    missing = str(caged.place / "nowhere")
    assert caged.run("", files=[(missing, "read")], **LEVEL).failed == f"can't restrict files: No such file or directory: {missing}"
    assert os.path.isdir(caged.place)


@pytest.mark.parametrize(
    "body",
    [
        "os.chmod(sys.argv[1], 0o644)",
        "os.utime(sys.argv[1], (1, 1))",
        "os.setxattr(sys.argv[1], 'user.x', b'1')",
        "os.chown(sys.argv[1], -1, os.getgid())",
    ],
)
def test_it_changes_no_mode_or_time_of_the_nodes_files(user_cage: Cage, body: str):
    """Landlock has no right for that, and where there is one uid for all the node's files are the model's own."""
    secret = user_cage.file(user_cage.folder("secrets"), "token", "secret")
    code = attempt(f"{body}; return 'changed'")
    assert user_cage.run(code, str(secret), **LEVEL).said == "EPERM"
    assert user_cage.run(code, str(secret), without=("seccomp",), **LEVEL).said == "changed", "the filter is what it takes"


def test_with_a_uid_of_its_own_it_may_change_what_it_owns(root_cage: Cage):
    scratch = root_cage.folder("scratch")
    code = attempt("open(sys.argv[1], 'w').close(); os.chmod(sys.argv[1], 0o600); os.utime(sys.argv[1]); return 'changed'")
    assert root_cage.run(code, str(scratch / "file"), files=[(scratch, "write")], **LEVEL).said == "changed"
    others = root_cage.place / "driver.py"
    assert root_cage.run(attempt("os.chmod(sys.argv[1], 0o600)"), str(others), **LEVEL).said == "EPERM"


def test_it_watches_no_folder(caged: Cage):
    code = attempt("""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.inotify_add_watch(libc.inotify_init1(0), sys.argv[1].encode(), 0xFFF) < 0: raise OSError(ctypes.get_errno(), '')
return 'watching'
""")
    folder = str(caged.folder("secrets"))
    assert caged.run(code, folder, **LEVEL).said == "EPERM"
    assert caged.run(code, folder, without=("seccomp",), **LEVEL).said == "watching"
