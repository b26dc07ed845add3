"""System calls that the standard library of Python 3.11 doesn't have, through libc. Issue C's walls need more of them; they go here."""

import ctypes
import os
import signal

CLONE_NEWPID = 0x20000000
_NR_CLOSE_RANGE = 436  # the same on every architecture
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """The kernel sends this process `number` when the thread that forked it ends. It outlives exec, not a change of uid."""
    _prctl(_PR_SET_PDEATHSIG, number)


def become_subreaper() -> None:
    """Descendants whose parent dies become children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> None:
    """What `ps` and `top` show for this thread: 15 bytes at most."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _prctl(_PR_SET_NAME, ctypes.addressof(buffer))


def close_from(first: int) -> None:
    """Closes every descriptor from `first` on. By system call: not every Python was built with a libc that knows close_range."""
    if _libc.syscall(ctypes.c_long(_NR_CLOSE_RANGE), ctypes.c_uint(first), ctypes.c_uint(0xFFFFFFFF), ctypes.c_uint(0)) != 0:
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def unshare(flags: int) -> None:
    """Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, flags: int) -> None:
    """Raises OSError."""
    _check(_libc.setns(descriptor, flags), "setns")


def _prctl(option: int, argument: int) -> None:
    _check(_libc.prctl(option, argument, 0, 0, 0), "prctl")


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
