"""Each wall holds, and is needed: with it left out of the plan the same attempt succeeds."""

import os
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.security.sandbox.cage import DIES_S, Cage

ATTEMPT = """
import errno, json, os, sys
def attempt():
{body}
try:
    print(json.dumps(attempt()))
except OSError as error:
    print(json.dumps(errno.errorcode[error.errno]))
"""


def attempt(body: str) -> str:
    return ATTEMPT.format(body="\n".join("    " + line for line in body.strip().splitlines()))


READ = attempt("return open(sys.argv[1]).read()")
WRITE = attempt("return open(sys.argv[1], 'w').write('mine')")


def test_a_file_that_isnt_listed_isnt_there(caged: Cage):
    secret = caged.file(caged.folder("secrets"), "token", "secret")
    assert caged.run(READ, str(secret)).said == "ENOENT"
    assert caged.run(READ, str(secret), without=("root",)).said == "EACCES", "Landlock is the second wall"
    assert caged.run(READ, str(secret), without=("root", "landlock")).said == "secret"


def test_a_listed_file_lies_at_its_host_path(caged: Cage):
    folder = caged.folder("bundle")
    path = caged.file(folder, "weights", "1 2 3")
    assert caged.run(READ, str(path), files=[(folder, "read")]).said == "1 2 3"
    assert caged.run(READ, str(path), files=[(path, "read")]).said == "1 2 3"
    beside = caged.file(folder, "other", "4")
    assert caged.run(READ, str(beside), files=[(path, "read")]).said == "ENOENT"


def test_a_file_in_the_hosts_tmp_can_be_listed_although_tmp_is_its_own(caged: Cage):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        path = caged.file(Path(folder), "weights", "1")
        code = attempt("return [open(sys.argv[1]).read(), os.listdir('/tmp')]")
        assert caged.run(code, str(path), files=[(path, "read")]).said == ["1", [Path(folder).name]]


def test_what_is_listed_for_reading_cant_be_written(caged: Cage):
    folder = caged.folder("bundle")
    path = caged.file(folder, "weights", "")
    assert caged.run(WRITE, str(path), files=[(folder, "read")]).said == "EROFS"
    assert caged.run(WRITE, str(path), files=[(folder, "write")]).said == 4
    assert path.read_text() == "mine"


@pytest.mark.parametrize("path", ["/new", "/usr/new", "/etc/new", "/dev/new", "/run/new", "/etc/passwd", "/proc/new"])
def test_the_system_cant_be_written(caged: Cage, path: str):
    assert caged.run(WRITE, path).said in ("EROFS", "EACCES", "ENOENT")
    assert caged.run(WRITE, path, without=("landlock", "seccomp")).said in ("EROFS", "EACCES", "ENOENT")


def test_its_own_folders_can_be_written(caged: Cage):
    scratch = caged.folder("scratch")
    write = attempt("""
for folder in sys.argv[1:]:
    with open(os.path.join(folder, 'file'), 'w') as file: file.write('x')
    os.mkdir(os.path.join(folder, 'folder'))
    os.rename(os.path.join(folder, 'file'), os.path.join(folder, 'folder', 'file'))
    os.symlink('a', os.path.join(folder, 'link'))
    os.mkfifo(os.path.join(folder, 'fifo'))
return True
""")
    assert caged.run(write, str(scratch), "/tmp", "/dev/shm", files=[(scratch, "write")]).said is True
    assert (scratch / "folder" / "file").stat().st_uid == caged.uid


def test_it_sees_no_process_but_its_own(caged: Cage):
    code = attempt("return [name for name in os.listdir('/proc') if name.isdigit()]")
    assert caged.run(code).said == ["1"]
    assert len(caged.run(code, without=("root", "landlock")).said) > 1


def test_it_cant_signal_a_neighbour_of_its_uid(caged: Cage):
    shot = attempt("os.kill(int(sys.argv[1]), 15); return 'sent'")
    held = caged.run(shot, "NEIGHBOUR", neighbour=True)
    assert held.said == "ESRCH"
    assert held.neighbour is None
    # In a namespace of users it is nobody to its neighbours even where it can name them.
    scoped = caged.run(shot, "NEIGHBOUR", neighbour=True, without=("pids",))
    assert scoped.said == "EPERM"
    open_ = caged.run(shot, "NEIGHBOUR", neighbour=True, dies_s=DIES_S, without=("pids", "landlock"))
    assert (open_.said, open_.neighbour) == ("sent", -15)


def test_killing_everybody_ends_only_itself(caged: Cage):
    code = attempt("""
if os.fork() == 0:
    import time; time.sleep(30); os._exit(0)
os.kill(-1, 9)
return os.waitstatus_to_exitcode(os.wait()[1])
""")
    held = caged.run(code, neighbour=True)
    assert held.said == -9
    assert held.neighbour is None


def test_it_reaches_no_listener_of_the_host(caged: Cage):
    code = attempt("""
import socket
with socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=5): return 'connected'
""")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert caged.run(code, port).said == "EAFNOSUPPORT"
        assert caged.run(code, port, without=("network",)).said == "EAFNOSUPPORT", "the filter alone holds"
        assert caged.run(code, port, without=("seccomp",)).said == "ENETUNREACH", "the namespace alone holds"
        assert caged.run(code, port, without=("seccomp",), loopback=True).said == "ECONNREFUSED", "loopback is its own"
        assert caged.run(code, port, without=("network", "seccomp")).said == "connected"


def test_it_reaches_no_abstract_socket_of_the_host(caged: Cage):
    code = attempt("""
import socket
with socket.socket(socket.AF_UNIX) as client: client.connect('\\0' + sys.argv[1]); return 'connected'
""")
    name = f"fornada-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        assert caged.run(code, name).said == "ECONNREFUSED"
        assert caged.run(code, name, without=("landlock",)).said == "ECONNREFUSED"
        assert caged.run(code, name, without=("network",)).said in ("EPERM", "connected")
        assert caged.run(code, name, without=("network", "landlock")).said == "connected"


def test_it_reaches_no_socket_that_lies_in_the_hosts_files(caged: Cage):
    code = attempt("""
import socket
with socket.socket(socket.AF_UNIX) as client: client.connect(sys.argv[1]); return 'connected'
""")
    folder = caged.folder("sockets")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        os.chmod(folder / "s", 0o777)
        listener.listen()
        assert caged.run(code, str(folder / "s")).said == "ENOENT"
        assert caged.run(code, str(folder / "s"), without=("root", "landlock")).said == "connected"


def test_it_finds_no_shared_memory_of_the_host(caged: Cage):
    key = 0x466F726E ^ os.getpid()
    made = subprocess.run(["ipcmk", "-M", "4096", "-p", "0666"], capture_output=True, text=True)
    if made.returncode:
        pytest.skip("ipcmk is missing")
    number = made.stdout.split()[-1]
    try:
        listed = subprocess.run(["ipcs", "-m"], capture_output=True, text=True, check=True).stdout
        key = next(int(line.split()[0], 16) for line in listed.splitlines() if line.split()[1:2] == [number])
        code = attempt("""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.shmget(int(sys.argv[1]), 0, 0) < 0: raise OSError(ctypes.get_errno(), '')
return 'found'
""")
        assert caged.run(code, str(key)).said == "ENOENT"
        assert caged.run(code, str(key), without=("ipc",)).said == "found"
    finally:
        subprocess.run(["ipcrm", "-m", number], check=True)


def test_it_is_nobody_outside_and_may_nothing_inside(caged: Cage):
    code = attempt("""
status = dict(line.rstrip('\\n').split(':\\t', 1) for line in open('/proc/self/status'))
return [os.getuid(), os.getgid(), os.getgroups(), *(status[name] for name in
        ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp'))]
""")
    none = "0" * 16
    assert caged.run(code).said == [1000, 1000, [], none, none, none, none, none, "1", "2"]
    # Where users' namespaces are forbidden, root's uids are the wall.
    without = caged.run(code, without=("users",)).said
    assert without == [caged.uid, caged.uid, [], none, none, none, none, none, "1", "2"]


def test_a_setuid_program_gives_nothing(caged: Cage):
    code = attempt("""
import subprocess
return subprocess.run(['/usr/bin/su', '-c', 'id -u', 'root'], capture_output=True, stdin=subprocess.DEVNULL, timeout=20).returncode != 0
""")
    assert caged.run(code).said is True
    flags = attempt("""
lines = [line.split() for line in open('/proc/self/mountinfo')]
return [line[4] for line in lines if 'nosuid' not in line[5].split(',')]
""")
    assert caged.run(flags).said == []


def test_no_mount_is_writable_but_those_that_must_be(caged: Cage):
    scratch = caged.folder("scratch")
    code = attempt("""
lines = [line.split() for line in open('/proc/self/mountinfo')]
return sorted(line[4] for line in lines if 'rw' in line[5].split(','))
""")
    assert caged.run(code, files=[(scratch, "write")]).said == sorted(["/proc", "/tmp", "/dev/shm", str(scratch)])


def test_devices_are_the_listed_ones(caged: Cage):
    code = attempt("""
import stat
found = [os.path.join(folder, name) for folder, _, names in os.walk('/dev') for name in names]
return sorted(path for path in found if stat.S_ISCHR(os.stat(path).st_mode) or stat.S_ISBLK(os.stat(path).st_mode))
""")
    usual = ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"]
    found = [path for path in caged.run(code).said if not path.startswith(("/dev/fd", "/dev/std"))]
    assert found == usual
    if Path("/dev/tty").exists():
        found = caged.run(code, files=[("/dev/tty", "use")]).said
        assert [path for path in found if not path.startswith(("/dev/fd", "/dev/std"))] == sorted([*usual, "/dev/tty"])
    use = attempt("""
with open('/dev/null', 'w') as null: null.write('x')
with open('/dev/zero', 'rb') as zero: assert zero.read(3) == bytes(3)
return len(os.urandom(8))
""")
    assert caged.run(use).said == 8
    assert caged.run(attempt("os.chmod('/dev/null', 0o600); return 1")).said in ("EROFS", "EPERM")


def test_it_makes_no_device(caged: Cage):
    code = attempt("os.mknod('/tmp/sda', 0o060666, os.makedev(254, 0)); return 'made'")
    assert caged.run(code).said == "EPERM"
    fifo = attempt("os.mknod('/tmp/fifo', 0o010666); return 'made'")
    assert caged.run(fifo).said == "made"


def test_its_host_name_and_its_cgroup_are_its_own(caged: Cage):
    code = attempt("return [os.uname().nodename, [line.split(':')[2].strip() for line in open('/proc/self/cgroup')]]")
    name, groups = caged.run(code).said
    assert name == "model"
    assert set(groups) == {"/"}
    assert caged.run(code, without=("hostname",)).said[0] == os.uname().nodename


def test_a_generated_file_takes_the_place_of_one_in_proc(caged: Cage):
    told = caged.file(caged.folder("view"), "meminfo", "MemTotal:  512000 kB\n")
    code = attempt("return open('/proc/meminfo').read()")
    assert caged.run(code, over={"/proc/meminfo": str(told)}).said == "MemTotal:  512000 kB\n"
    assert "MemTotal:  512000 kB" not in caged.run(code).said


def test_a_link_in_a_writable_folder_leads_no_mount_astray(caged: Cage):
    scratch = caged.folder("scratch")
    (scratch / "link").symlink_to("/etc")
    result = caged.run("", files=[(scratch, "write")], entries=[{"kind": "folder", "path": f"{scratch}/link/x"}])
    assert result.code == 127
    assert result.failed == f"can't build the root: Not a directory: {scratch}/link/x"


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/", "/./x"])
def test_an_entry_with_a_crooked_path_is_refused(caged: Cage, path: str):
    result = caged.run("", entries=[{"kind": "folder", "path": path}])
    assert result.code == 127
    assert "absolute" in result.failed


def test_walls_that_are_built_in_two_halves_are_the_same(caged: Cage):
    scratch, bundle = caged.folder("scratch"), caged.folder("bundle")
    path = caged.file(bundle, "weights", "1")
    code = attempt("""
status = dict(line.rstrip('\\n').split(':\\t', 1) for line in open('/proc/self/status'))
lines = [line.split() for line in open('/proc/self/mountinfo')]
with open(sys.argv[2] + '/written', 'w') as file: file.write('x')
return [open(sys.argv[1]).read(), os.getpid(), os.getuid(), os.uname().nodename, os.getcwd(), os.listdir('/'),
        [status[name] for name in ('CapEff', 'CapBnd', 'NoNewPrivs', 'Seccomp', 'Umask')], sorted(os.listdir('/proc/self/fd')),
        [[line[4], line[5]] for line in lines], open('/proc/self/cgroup').read().count(':/\\n')]
""")
    asked = {"files": [(bundle, "read"), (scratch, "write")], "without": ("landlock",)}
    assert caged.run(code, str(path), str(scratch), halves=True, **asked).said == caged.run(code, str(path), str(scratch), **asked).said
    assert caged.run(WRITE, str(path), halves=True, files=[(bundle, "read")]).said == "EROFS"
    assert caged.run(READ, "/etc/shadow", halves=True).said == "ENOENT"
