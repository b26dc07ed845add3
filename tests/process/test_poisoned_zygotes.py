"""What code can do that runs while a zygote imports: with the zygote's own rights, before any wall of a model stands."""

import json
from collections.abc import Iterator

import pytest

from tests.process.test_zygotes import APART, _start
from tests.process.zygote_stand import Stand

POISON = """
import ctypes, json, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
SRC, ENVIRONMENT, SECRET = {src!r}, {environment!r}, {secret!r}
MS_REMOUNT, MS_BIND, MNT_DETACH = 32, 4096, 2
def call(function, *arguments):
    if function(*arguments) != 0:
        raise OSError(ctypes.get_errno(), "")
def remount(path):
    call(libc.mount, None, path.encode(), None, MS_REMOUNT | MS_BIND, None)
def see_below_proc():
    call(libc.umount2, b"/proc", MNT_DETACH)
    return sorted(name for name in os.listdir("/proc") if name.isdigit())
def setattr_writable(path):
    descriptor = os.open(path, os.O_PATH)
    call(libc.syscall, 442, descriptor, b"", 0x1000, (ctypes.c_uint64 * 4)(0, 1, 0, 0), 32)
def everybody():
    os.kill(-1, signal.SIGCONT)
TRIED = {{
    "read a secret": lambda: open(SECRET),
    "read shadow": lambda: open("/etc/shadow"),
    "write the SDK": lambda: open(SRC + "/fornada_sdk/api.py", "a"),
    "write the system": lambda: open("/usr/bin/poison", "w"),
    "remount the SDK": lambda: remount(SRC),
    "remount the root": lambda: remount("/"),
    "mount_setattr": lambda: setattr_writable(SRC),
    "unmount the SDK": lambda: call(libc.umount2, SRC.encode(), MNT_DETACH),
    "read the guard's memory": lambda: open("/proc/1/../2/mem", "rb"),
    "trace": lambda: call(libc.ptrace, 16, 1, None, None),
    "connect": lambda: socket.create_connection(("127.0.0.1", 22), timeout=1),
    "reach a name": lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + "fornada"),
    "become another": lambda: os.setresuid(4000, 4000, 4000),
    "a device": lambda: os.mknod("/tmp/sda", 0o60600, os.makedev(8, 0)),
    "another table of modules": lambda: call(libc.syscall, 175, None, 0, b""),
    "bpf": lambda: call(libc.syscall, 321, 0, None, 0),
    "keys": lambda: call(libc.syscall, 250, 0, 0),
    "rings": lambda: call(libc.syscall, 425, 1, None),
    "chroot": lambda: os.chroot("/tmp"),
    "the host's name": lambda: call(libc.sethostname, b"x", 1),
    "raise a limit": lambda: __import__("resource").setrlimit(7, (1 << 20, 1 << 20)),
}}
def tried(what):
    try:
        what()
        return "done"
    except Exception as error:
        return type(error).__name__
found = {{name: tried(what) for name, what in TRIED.items()}}
raise ImportError(json.dumps([name for name, how in found.items() if how == "done"]))
"""
"""What it says comes out as the reason of a failed import."""

ALLOWED = {"the host's name"}
"""In a uts namespace that isn't its own user namespace's it is refused, too; where it isn't, the name is the zygote's own."""


@pytest.fixture(params=APART)
def stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    for start in _start(request.param):
        yield start()


def poisoned(stand: Stand, code: str) -> list[str]:
    secret = stand.place / "secret"
    secret.write_text("s")
    secret.chmod(0o644)
    environment = str(stand.python).rsplit("/bin/", 1)[0]
    (stand.src / "poison.py").write_text(code.format(src=str(stand.src), environment=environment, secret=str(secret)))
    facts = stand.ready(modules=("poison",))
    text = facts["failed"]["poison"]
    assert text.startswith("ImportError: "), text
    found: list[str] = json.loads(text.removeprefix("ImportError: "))
    return found


def test_import_time_code_reaches_nothing_that_is_not_its_zygotes(stand: Stand):
    assert set(poisoned(stand, POISON)) <= ALLOWED
    # And what it may do to itself costs nobody else anything.
    stand.ready(key="good")
    stand.up("one", key="good")
    assert stand.ask("one", well=1) == {"well": 1}


REPORT = 'raise ImportError(json.dumps([name for name, how in found.items() if how == "done"]))'
BELOW = POISON.replace(REPORT, "raise ImportError(json.dumps(see_below_proc()))").replace("found = {{", "unused = lambda: {{")


def test_below_its_proc_there_is_its_guards_namespace_and_no_more(stand: Stand):
    """Of that one it sees the guard, itself, and nobody of the host's."""
    assert len(poisoned(stand, BELOW)) <= 3


KILLER = """
import os, signal
os.kill(-1, signal.SIGKILL)
raise ImportError("[]")
"""


def test_signals_to_everybody_reach_its_own_processes(stand: Stand):
    stand.ready(key="good")
    stand.up("one", key="good")
    try:
        poisoned(stand, KILLER.replace("{", "{{").replace("}", "}}"))
    except AssertionError:
        pass  # it may have ended itself
    assert stand.ask("one", well=1) == {"well": 1}
