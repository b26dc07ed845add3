"""What an instance sees of its host: the parent's half, which opens everything, so that the child only puts it in its place.

Every file keeps its host path, so that what names it (a virtual environment's links, an assignment) is true at every level.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fornada_sdk.sandbox import mounts
from fornada_sdk.sandbox.plan import Access, Attached, Entry, Folder, Grant, Landlock, Link, Memory, Processes, Root, Text

FILES_IN_MEMORY = 65536
"""Files that a folder in memory may hold (/tmp, /dev/shm, what is ordered so): about 1 KiB of kernel memory for one."""

_TOP = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM = ("/usr", "/etc/alternatives", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/ld.so.cache")
_ETC = ("/etc/localtime", "/etc/os-release")
_MACHINE = ("/sys/devices/system/cpu", "/sys/devices/system/node")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_LINKS = (
    *(("/dev/fd", "/proc/self/fd"), ("/dev/stdin", "/proc/self/fd/0"), ("/dev/stdout", "/proc/self/fd/1")),
    ("/dev/stderr", "/proc/self/fd/2"),
)
_HOSTS = "127.0.0.1 localhost\n::1 localhost\n"
_SERVICES = "passwd: files\ngroup: files\nhosts: files dns\n"
_PREFIX_PARTS = ("bin", "include", "lib", "lib32", "lib64", "ssl")
"""A Python may be installed in ~/.local, where people keep other things too."""
_SHARED_ETC = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf")
_SHARED_PROC = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/version", "/proc/filesystems", "/proc/sys")


class View(NamedTuple):
    """A root, the descriptors that its entries count, and what may be done in it. The descriptors belong to the receiver."""

    root: Root
    descriptors: tuple[int, ...]
    landlock: Landlock


def open_view(
    files: Sequence[Grant],
    *,
    python: str = "",
    over: Mapping[str, str],
    in_memory: Mapping[str, int],
    temporary_bytes: int,
    shared_bytes: int,
    uid: int = 1000,
    gid: int = 1000,
) -> View:
    """The system's programs and libraries, an own /proc, /tmp and /dev/shm, and `files`: folders, files, device nodes (Access.USE).

    With `python` the interpreter that this path leads to is there too, wherever it lies. `over` are paths of the view and files of
    the host that take their place, such as "/proc/meminfo"; `in_memory` are those of `files`, to write, whose place an empty folder of so
    many bytes of memory takes. `uid` and `gid` are what the instance is called inside.
    Needs CAP_SYS_ADMIN over the mount namespace. Raises OSError that names the path; nothing stays open then.
    """
    with contextlib.ExitStack() as on_failure:
        making = _Making(on_failure, in_memory)
        making.system(uid, gid, temporary_bytes, shared_bytes)
        making.add([*(Grant(path, Access.READ) for path in (interpreter(python) if python else ())), *files], over)
        on_failure.pop_all()
    # Not "/": should the child ever come to hold something of the host's root, this is what still keeps it out.
    grants = [Grant("/etc", Access.READ), Grant("/dev", Access.USE), Grant("/proc", Access.USE)]
    grants += [Grant("/tmp", Access.WRITE), Grant("/dev/shm", Access.WRITE), *_grants(making, files)]
    return View(Root(tuple(making.entries)), tuple(making.descriptors), Landlock(tuple(grants)))


def open_more(files: Sequence[Grant], *, over: Mapping[str, str], in_memory: Mapping[str, int]) -> View:
    """What is added to a root that was begun with `open_view`'s: its `landlock` is of this alone. Raises OSError, as that does."""
    with contextlib.ExitStack() as on_failure:
        making = _Making(on_failure, in_memory)
        making.add(files, over)
        on_failure.pop_all()
    return View(Root(tuple(making.entries)), tuple(making.descriptors), Landlock(_grants(making, files)))


def host_grants(files: Sequence[Grant], *, python: str = "") -> Landlock:
    """The same without a file system of its own: what of the host's may be used. No /tmp and no /dev/shm, which are everybody's."""
    grants = [Grant(path, Access.READ) for path in (*_TOP, *_SYSTEM, *_ETC, *_SHARED_ETC, *_MACHINE, *_SHARED_PROC)]
    grants += [Grant(path, Access.USE) for path in (*_DEVICES, "/proc/self")]
    grants += [Grant(path, Access.READ) for path in (interpreter(python) if python else ())]
    there = [grant for grant in grants if os.path.exists(grant.path)]
    return Landlock((*there, *files), refuse_tcp=True)


def interpreter(python: str) -> list[str]:
    """Paths outside /usr that a Python is made of, found as it finds them itself: by its links, and by `home` in its pyvenv.cfg."""
    hops: list[str] = []
    path = python
    while os.path.islink(path) and len(hops) < 40:
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
        hops.append(path)
    homes = [*map(os.path.dirname, (*hops, os.path.realpath(python))), *_configured(python)]
    found: dict[str, None] = {}
    for prefix in map(os.path.dirname, homes):
        if glob.glob(os.path.join(glob.escape(prefix), "lib*", "python3*", "os.py")):
            found.update(dict.fromkeys(os.path.join(prefix, part) for part in _PREFIX_PARTS))
    found.update(dict.fromkeys(hop for hop in hops if os.path.dirname(hop) != os.path.dirname(python)))
    outside = [path for path in found if os.path.exists(path) and not _below(path, ("/usr", *_TOP))]
    return [path for path in outside if not _below(path, [other for other in outside if other != path])]


def _configured(python: str) -> list[str]:
    path = os.path.join(os.path.dirname(os.path.dirname(python)), "pyvenv.cfg")
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.partition("=") for line in file]
        return [value.strip() for name, _, value in lines if name.strip() == "home"]
    return []


def _grants(making: _Making, files: Sequence[Grant]) -> tuple[Grant, ...]:
    attached = (Grant(entry.path, Access.READ) for entry in making.entries if isinstance(entry, Attached))
    return (*attached, *(grant for grant in files if grant.access is not Access.READ))


class _Making:
    """Entries and descriptors as they come together."""

    def __init__(self, on_failure: contextlib.ExitStack, in_memory: Mapping[str, int]) -> None:
        self._in_memory = in_memory
        self.entries: list[Entry] = []
        self.descriptors: list[int] = []
        self._on_failure = on_failure
        self._read: list[str] = []

    def attach(self, path: str, access: Access, *, source: str = "") -> None:
        if access is Access.READ and not source:
            if _below(path, self._read):
                return
            self._read.append(path)
        if access is Access.WRITE and path in self._in_memory:
            descriptor = mounts.in_memory(path, size_bytes=self._in_memory[path], files=FILES_IN_MEMORY)
        else:
            descriptor = mounts.detach(source or path, access)
        self._on_failure.callback(os.close, descriptor)
        self.entries.append(Attached(path, len(self.descriptors)))
        self.descriptors.append(descriptor)

    def add(self, files: Sequence[Grant], over: Mapping[str, str]) -> None:
        for path, source in over.items():
            self.attach(path, Access.READ, source=source)
        for grant in sorted(files, key=lambda grant: grant.path.rstrip("/").count("/")):  # a folder before what lies in it
            self.attach(grant.path, grant.access)

    def system(self, uid: int, gid: int, temporary_bytes: int, shared_bytes: int) -> None:
        for path in (*_SYSTEM, *_ETC, *_MACHINE):
            if os.path.exists(path):
                self.attach(path, Access.READ)
        for path in _TOP:
            if os.path.islink(path):
                self.entries.append(Link(path, os.readlink(path)))
            elif os.path.isdir(path):
                self.attach(path, Access.READ)
        for path in _DEVICES:
            self.attach(path, Access.USE)
        self.entries += [
            Text("/etc/passwd", f"model:x:{uid}:{gid}::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"),
            Text("/etc/group", f"model:x:{gid}:\nnogroup:x:65534:\n"),
            Text("/etc/hosts", _HOSTS),
            Text("/etc/nsswitch.conf", _SERVICES),
            Processes(),
            Memory("/tmp", temporary_bytes, FILES_IN_MEMORY),
            Memory("/dev/shm", shared_bytes, FILES_IN_MEMORY),
            *(Link(path, target) for path, target in _LINKS),
            Folder("/run"),
        ]


def _below(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
