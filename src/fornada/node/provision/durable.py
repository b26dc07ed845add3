"""Files that are there completely or not at all, through kill -9 and power loss."""

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from fornada.core.errors import DiskFull
from fornada.core.resources import format_size

TEMPORARY = ".tmp-"
TRASH = ".trash-"
FILE_MODE = 0o444
EXECUTABLE_MODE = 0o555
FOLDER_MODE = 0o555
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """Turns "no space left" into DiskFull that names the directory and what is left there."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise no_space(directory) from None
        raise


def is_full(error: OSError) -> bool:
    """Whether it is the disk that has no room left."""
    return error.errno in _FULL


def no_space(directory: Path) -> DiskFull:
    """The refusal for a disk that is full."""
    left = ""
    with contextlib.suppress(OSError):
        left = f" ({format_size(shutil.disk_usage(directory).free)} left)"
    return DiskFull(f"no space left on the disk that holds {directory}{left}; free some, or run `fornada prune`", retry_after_s=60)


def temporary_name(key: str) -> str:
    """A name that a sweep may remove once nobody holds the key's lock."""
    return f"{TEMPORARY}{key}-{secrets.token_hex(4)}"


def write_file(path: Path, data: bytes | memoryview, *, mode: int = 0o600) -> None:
    """Replaces the file at once, durably."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Writes the file's content out."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Writes the folder's entries out: a rename inside is durable afterwards."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(path: Path) -> None:
    """Writes out the file system that holds `path`. An environment has thousands of files that uv wrote without fsync: one
    syncfs(2) is quicker than as many fsyncs."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(descriptor)


def write_folder(path: Path, files: dict[str, tuple[bytes, bool]]) -> None:
    """Makes the folder with these files ({relative path: (content, executable)}), durably, read-only. It must not exist."""
    path.mkdir(mode=0o700)
    for relative, (data, executable) in files.items():
        target = path / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        target.chmod(EXECUTABLE_MODE if executable else FILE_MODE)
    for folder, _, _ in os.walk(path, topdown=False):
        sync_folder(Path(folder))
    freeze(path)


def freeze(path: Path) -> None:
    """Takes the write bits from all folders below `path` and from itself: what is shared isn't changed in passing."""
    for folder, _, _ in os.walk(path, topdown=False):
        os.chmod(folder, FOLDER_MODE)


def remove(path: Path) -> None:
    """Removes a file or a folder, frozen or not, as far as it can: a build that is being killed may still write into it, and
    what is left carries a name that the next sweep removes."""
    if path.is_dir() and not path.is_symlink():
        for below, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                os.chmod(below, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def discard(path: Path) -> None:
    """Removes something that others may look at: renamed first, so that nobody finds half of it."""
    trash = set_aside(path)
    if trash:
        remove(trash)


def set_aside(path: Path) -> Path | None:
    """The first half of `discard`, which takes no time: what is to be removed, by its new name. None: it was gone."""
    trash = path.with_name(f"{TRASH}{secrets.token_hex(8)}")
    try:
        if path.is_dir() and not path.is_symlink():
            os.chmod(path, 0o700)
        os.rename(path, trash)
    except FileNotFoundError:
        return None
    return trash


def disk_bytes(*paths: Path) -> int:
    """Bytes on disk of everything below, files with several names counted once."""
    total = 0
    seen: set[tuple[int, int]] = set()
    pending = [path for path in paths if path.exists()]
    while pending:
        try:
            found = list(os.scandir(pending.pop()))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in found:
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    pending.append(Path(entry.path))
                elif (status.st_dev, status.st_ino) not in seen:
                    seen.add((status.st_dev, status.st_ino))
                    total += status.st_blocks * 512
    return total
