"""System calls by number, for attempts that the standard library has no function for. Each raises OSError."""

import ctypes
import os
import platform
import socket
import stat
from collections.abc import Callable

_MACHINE = platform.machine()
_LIBC = ctypes.PyDLL(None, use_errno=True)
"""Calls keep the interpreter's lock: where another thread had it, the process that clone3 makes would wait for it for ever."""
_NUMBERS = {
    "x86_64": {
        "ptrace": 101,
        "syslog": 103,
        "bpf": 321,
        "userfaultfd": 323,
        "perf_event_open": 298,
        "keyctl": 250,
        "name_to_handle_at": 303,
        "open_by_handle_at": 304,
        "tgkill": 234,
        "shmget": 29,
        "shmat": 30,
        "shmdt": 67,
        "mount": 165,
        "unshare": 272,
    },
    "aarch64": {
        "ptrace": 117,
        "syslog": 116,
        "bpf": 280,
        "userfaultfd": 282,
        "perf_event_open": 241,
        "keyctl": 219,
        "name_to_handle_at": 264,
        "open_by_handle_at": 265,
        "tgkill": 131,
        "shmget": 194,
        "shmat": 196,
        "shmdt": 197,
        "mount": 40,
        "unshare": 97,
    },
}
_SAME = {"io_uring_setup": 425, "clone3": 435, "pidfd_getfd": 438, "pidfd_open": 434}

NEWUSER = 0x10000000
_SO_PEERPIDFD = 77


def call(name: str, *arguments: "int | bytes | ctypes.Array[ctypes.c_char]") -> int:
    """The result of the system call."""
    number = _SAME.get(name) or _NUMBERS[_MACHINE][name]
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    _LIBC.syscall.restype = ctypes.c_long
    result = int(_LIBC.syscall(ctypes.c_long(number), *words))
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def own_sockets() -> "list[int]":
    return [number for number in map(int, os.listdir("/proc/self/fd")) if _is_socket(number)]


def _is_socket(number: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False


def peer_of(number: int) -> int:
    """A pidfd of the process at a socket's other end, wherever that lives: the keeper, the control plane. Raises OSError."""
    with socket.socket(fileno=os.dup(number)) as sock:
        return int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4), "little")


def in_a_child(attempt: Callable[[], object]) -> None:
    """Runs `attempt` in a forked child, whose OSError is raised here: for what would change this process for good."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        number = 255
        try:
            attempt()
            number = 0
        except OSError as error:
            number = error.errno or 255
        finally:
            os.write(writing, bytes([min(number, 255)]))
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read(1)
    os.waitpid(pid, 0)
    if said != b"\0":
        number = said[0] if said else 255
        raise OSError(number, os.strerror(number))
