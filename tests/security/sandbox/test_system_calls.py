"""The filter in the kernel: each group of calls is refused behind it, and reaches the kernel without it."""

import json

import pytest

from fornada_sdk.sandbox import architecture
from tests.security.sandbox.cage import Cage

# (call, arguments, what the kernel itself says to an ordinary process that makes it with nothing in its hands, which shows that it
# got there; None where the kernel refuses for want of rights too, or may have been told to)
REFUSED = [
    ("mount", (0, 0, 0, 0, 0), "EFAULT"),
    ("umount2", (0, 0), "EFAULT"),
    ("pivot_root", (0, 0), None),
    ("chroot", (0,), "EFAULT"),
    ("fsopen", (0, 0), None),
    ("fsmount", (-1, 0, 0), None),
    ("move_mount", (-1, 0, -1, 0, 0), None),
    ("open_tree", (-1, 0, 1), None),
    ("mount_setattr", (-1, 0, 0, 0, 0), "EINVAL"),
    ("unshare", (0x10000000,), "OK"),
    ("unshare", (0x00020000,), None),
    ("setns", (-1, 0), "EBADF"),
    ("ptrace", (0, 0, 0, 0), "OK"),  # PTRACE_TRACEME
    ("process_vm_readv", (1, 0, 0, 0, 0, 0), "OK"),
    ("process_vm_writev", (1, 0, 0, 0, 0, 0), "OK"),
    ("process_madvise", (-1, 0, 0, 0, 0), "EBADF"),
    ("pidfd_getfd", (-1, 0, 0), "EBADF"),
    ("kcmp", (1, 1, 0, 0, 0), "OK"),
    ("bpf", (0, 0, 0), None),
    ("perf_event_open", (0, 0, -1, -1, 0), "EFAULT"),
    ("userfaultfd", (1,), "OK"),  # UFFD_USER_MODE_ONLY
    ("io_uring_setup", (0, 0), "EFAULT"),
    ("io_uring_enter", (-1, 0, 0, 0, 0, 0), "EBADF"),
    ("io_uring_register", (-1, 0, 0, 0), None),
    ("keyctl", (0, -3, 0), "OK"),  # KEYCTL_GET_KEYRING_ID of the session's
    ("add_key", (0, 0, 0, 0, 0), "EFAULT"),
    ("request_key", (0, 0, 0, 0), "EFAULT"),
    ("open_by_handle_at", (-1, 0, 0), None),
    ("name_to_handle_at", (-1, 0, 0, 0, 0), None),
    ("kexec_load", (0, 0, 0, 0), None),
    ("init_module", (0, 0, 0), None),
    ("finit_module", (-1, 0, 0), None),
    ("delete_module", (0, 0), None),
    ("swapon", (0, 0), None),
    ("swapoff", (0,), None),
    ("reboot", (0, 0, 0, 0), None),
    ("acct", (0,), None),
    ("quotactl", (0, 0, 0, 0), None),
    ("settimeofday", (0, 0), None),
    ("clock_settime", (0, 0), "EFAULT"),
    ("sethostname", (0, 0), None),
    ("syslog", (3, 0, 0), None),
    ("fanotify_init", (0, 0), None),
    ("vhangup", (), None),
    ("migrate_pages", (1, 0, 0, 0), None),
    ("move_pages", (1, 0, 0, 0, 0, 0), None),
    ("seccomp", (0, 1, 0), "EINVAL"),
    ("landlock_create_ruleset", (0, 0, 1), "OK"),
    ("personality", (8,), "OK"),
    ("clone", (0x10000011, 0, 0, 0, 0), "OK"),
    ("prctl", (22, 0, 0, 0, 0), "EINVAL"),  # PR_SET_SECCOMP
    ("ioctl", (-1, 0x5412, 0), "EBADF"),  # TIOCSTI
    ("ioctl", (-1, 0x5412 | 1 << 32, 0), "EBADF"),
    ("ioctl", (-1, 0x541C, 0), "EBADF"),  # TIOCLINUX
    ("fcntl", (-1, 1024, 1), "EBADF"),  # F_SETLEASE
    ("fcntl", (-1, 1026, 1), "EBADF"),  # F_NOTIFY
    ("mknodat", (-1, 0, 0o020666, 0), "EFAULT"),
    ("socket", (2, 1, 0), "OK"),
    ("socket", (10, 2, 0), "OK"),
    ("socket", (16, 3, 0), "OK"),
    ("socket", (17, 3, 0), None),
    ("clone3", (0, 0), "EINVAL"),
]

MAKE_THEM = """
import ctypes, errno, json, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
for number, arguments in json.loads(sys.argv[1]):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        done = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(argument) for argument in arguments))
        os.write(write, (errno.errorcode[ctypes.get_errno()] if done < 0 else 'OK').encode())
        os._exit(0)
    os.close(write)
    text = os.read(read, 100).decode()
    os.close(read)
    os.waitpid(child, 0)
    print(json.dumps('OK' if text.startswith('OK') else text))  # a clone says it too
"""


def made(caged: Cage, calls: list, **asked) -> list[str]:
    numbers = architecture.own().numbers
    given = [(numbers[name], arguments) for name, arguments in calls if name in numbers]
    result = caged.run(MAKE_THEM, json.dumps(given), **asked)
    assert result.code == 0, (result.failed, result.out)
    return [json.loads(line) for line in result.out.splitlines()]


def expected(name: str) -> str:
    return {"clone3": "ENOSYS", "socket": "EAFNOSUPPORT"}.get(name, "EPERM")


def test_each_refused_call_is_refused_by_the_filter_and_by_nothing_before_it(caged: Cage):
    calls = [(name, arguments) for name, arguments, _ in REFUSED]
    with_filter = dict(zip(map(str, calls), made(caged, calls), strict=True))
    assert with_filter == {str((name, arguments)): expected(name) for name, arguments in calls}
    answers = dict(zip(map(str, calls), made(caged, calls, without=("seccomp",)), strict=True))
    for name, arguments, kernels in REFUSED:
        got = answers[str((name, arguments))]
        if kernels is not None:
            assert got in (kernels, "ENOSYS"), (name, arguments, got)
    needed = [name for name, arguments, _ in REFUSED if answers[str((name, arguments))] != expected(name)]
    assert len(needed) > 30, "the filter must be what refuses most of them"


def test_a_call_of_another_table_ends_the_process(caged: Cage):
    if architecture.own() is not architecture.X86_64:
        pytest.skip("x32 is x86")
    code = "import ctypes; print('alive', flush=True); ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 | 39)); print('still')"
    assert caged.run(code).out == "alive\n"
    assert caged.run(code).code == -31  # SIGSYS
    assert caged.run(code, without=("seccomp",)).out == "alive\nstill\n"


def test_a_newer_call_is_unknown(caged: Cage):
    code = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); libc.syscall(ctypes.c_long(480)); print(ctypes.get_errno())"
    assert caged.run(code).said == 38


def test_the_filter_for_a_network_carries_tcp_over_loopback_and_nothing_else(caged: Cage):
    code = """
import errno, json, socket
def tried(*kind):
    try: socket.socket(*kind).close(); return 'made'
    except OSError as error: return errno.errorcode[error.errno]
found = []
for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    with socket.create_server((address, 0), family=family) as listener:
        with socket.create_connection(listener.getsockname()[:2]) as client:
            server, _ = listener.accept()
            client.sendall(b'x'); found.append(server.recv(1).decode()); server.close()
    found += [tried(family, socket.SOCK_DGRAM), tried(family, socket.SOCK_RAW, 1), tried(family, socket.SOCK_STREAM, 132)]
try: socket.create_connection(('192.0.2.1', 80), timeout=5)
except OSError as error: found.append(errno.errorcode[error.errno])
print(json.dumps(found))
"""
    refused = ["x", "EPERM", "EPERM", "EPROTONOSUPPORT"]
    assert caged.run(code, variant="network", loopback=True).said == [*refused, *refused, "ENETUNREACH"]
    without = caged.run(code, without=("seccomp",), loopback=True).said
    assert without[1] == without[5] == "made", "UDP is there where the filter isn't"
