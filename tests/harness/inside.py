"""The process that tests/harness/throwaway.py starts: it goes into its namespaces and becomes the parent of their process 1."""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from tests.harness.throwaway import REPOSITORY, Orders

NOT_POSSIBLE = 77
_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_MS_NOSUID, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4096, 16384, 1 << 18
_NR_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = -100, 0x8000, 1
_PR_SET_PDEATHSIG = 1
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> NoReturn:
    report, orders = int(sys.argv[1]), Orders(**json.loads(sys.argv[2]))
    _die_with_parent()
    flags = _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS | (_NEWUSER | _NEWCGROUP if orders.own_users else 0)
    try:
        _check(_libc.unshare(flags), "unshare")
    except OSError as error:
        _impossible(f"no namespaces to attack in: {error}")
    os.write(report, b"u")
    os.close(report)
    if sys.stdin.readline() != "go\n":
        os._exit(1)
    child = os.fork()
    if child == 0:
        _die_with_parent()
        try:
            _arrange(orders)
        except OSError as error:
            _impossible(f"the namespaces can't be arranged: {error}")
        _first(orders)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _first(orders: Orders) -> NoReturn:
    """Process 1: reaps whoever loses its parent, and ends (so that all end) with the module."""
    module = os.fork()
    if module == 0:
        if orders.uid >= 0 and os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(orders.uid, orders.uid, orders.uid)
            os.setresuid(orders.uid, orders.uid, orders.uid)
        os.setsid()
        os.execv(orders.argv[0], orders.argv)
    while True:
        pid, status = os.wait()
        if pid == module:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _arrange(orders: Orders) -> None:
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    places = _places(orders)
    _set_read_only(b"/", True)
    if not orders.own_users:
        _set_read_only(b"/sys/fs/cgroup", False)  # the node that is attacked makes its groups there
    kept = [(place, os.open(place, os.O_PATH | os.O_DIRECTORY)) for place in places]
    for wall in _closed_to_others(places):
        _mount("tmpfs", str(wall), "tmpfs", 0, "size=1m,mode=755")
        for place, descriptor in kept:
            if place.is_relative_to(wall):
                place.mkdir(parents=True, exist_ok=True)
                _mount(f"/proc/self/fd/{descriptor}", str(place), "", _MS_BIND | _MS_REC)
                _set_read_only(str(place).encode(), True)
    for _, descriptor in kept:
        os.close(descriptor)
    _mount("tmpfs", orders.directory, "tmpfs", _MS_NOSUID, f"size={orders.disk_bytes},mode=755")
    if orders.uid >= 0 and os.geteuid() == 0:
        os.chown(orders.directory, orders.uid, orders.uid)
    _devices(Path(orders.directory))
    _mount("proc", "/proc", "proc", 0)
    _loopback_up()
    os.chdir(REPOSITORY)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() != 0 or orders.uid >= 0:
        resource.setrlimit(resource.RLIMIT_NPROC, (orders.processes, orders.processes))


def _devices(scratch: Path) -> None:
    """/dev with the harmless nodes, a /dev/shm of its own, and two "GPUs": plain files, since what is tested is who may open them."""
    new = scratch / "dev"
    new.mkdir()
    _mount("tmpfs", str(new), "tmpfs", _MS_NOSUID, "size=16m,mode=755")
    for name in _DEVICES:
        (new / name).touch()
        _mount(f"/dev/{name}", str(new / name), "", _MS_BIND)
    for name in ("nvidia0", "nvidia7"):
        (new / name).touch()
        (new / name).chmod(0o666)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (new / name).symlink_to(target)
    (new / "shm").mkdir(mode=0o1777)
    os.chmod(new / "shm", 0o1777)
    _mount(str(new), "/dev", "", _MS_BIND | _MS_REC)
    _check(_libc.umount2(str(new).encode(), 2), "umount")
    new.rmdir()


def _places(orders: Orders) -> list[Path]:
    """What the module needs to read, outermost only."""
    wanted = {REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parents[1], Path(orders.directory)}
    return [place for place in wanted if not any(place != other and place.is_relative_to(other) for other in wanted)]


def _closed_to_others(places: list[Path]) -> Iterator[Path]:
    """The outermost parents that an ordinary user can't go through; an interpreter may lie in the home of root."""
    found = set()
    for place in places:
        for parent in reversed(place.parents):
            if not parent.stat().st_mode & stat.S_IXOTH:
                found.add(parent)
                break
    yield from sorted(found)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        flags = struct.unpack("16sH14x", fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0)))[1]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def _set_read_only(path: bytes, read_only: bool) -> None:
    attributes = struct.pack("<QQQQ", _ATTR_RDONLY if read_only else 0, 0 if read_only else _ATTR_RDONLY, 0, 0)
    _check(_libc.syscall(_NR_MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE, attributes, len(attributes)), "mount_setattr")


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    result = _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _check(result, f"mount {target}")


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def _impossible(why: str) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, f"{why}\n".encode())
    os._exit(NOT_POSSIBLE)


if __name__ == "__main__":
    main()
