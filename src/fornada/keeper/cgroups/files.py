"""Files of the cgroup file systems. Each failure is one line that names the file."""

import errno
import os
from pathlib import Path


class CgroupError(Exception):
    """The kernel refused. The message is one line: what, which file, why."""


def write(path: Path, text: str) -> None:
    """Raises CgroupError. One system call: the kernel reads a value from one write."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CgroupError(f"can't write '{text}' to {path}: {error.strerror}") from None


def read(path: Path) -> str:
    """The text without the white space around it. Raises CgroupError."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise CgroupError(f"can't read {path}: {error.strerror}") from None


def number(path: Path) -> int:
    """Raises CgroupError."""
    text = read(path)
    try:
        return int(text)
    except ValueError:
        raise CgroupError(f"{path} holds '{text[:40]}' and no number") from None


def table(path: Path) -> dict[str, int]:
    """A file of lines "key number". Raises CgroupError."""
    return parsed(read(path))


def parsed(text: str) -> dict[str, int]:
    """Lines "key number"; others are left out."""
    found = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if value.strip().isdigit():
            found[key] = int(value)
    return found


def members(folder: Path) -> list[int]:
    """Pids of the processes in the cgroup, 0 for one that this process's pid namespace doesn't show. Raises CgroupError."""
    return [int(word) for word in read(folder / "cgroup.procs").split()]


def make(folder: Path) -> None:
    """Raises CgroupError."""
    try:
        folder.mkdir(mode=0o755, exist_ok=True)
    except OSError as error:
        raise CgroupError(f"can't make {folder}: {error.strerror}") from None


def gone(folder: Path) -> bool:
    """Removes the cgroup. False while a process in it is still dying: ask again. Raises CgroupError."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.ENOTEMPTY):
            return False
        raise CgroupError(f"can't remove {folder}: {error.strerror}") from None
    return True
