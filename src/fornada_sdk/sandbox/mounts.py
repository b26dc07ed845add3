"""A file system for one instance: copies of the host's mounts that are mounted nowhere, and a root that is built of them.

The first half (`detach`) is the parent's, which may see the host; the second is the child's, which never names a path of it.
Needs Linux 5.12.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence

from fornada_sdk.sandbox import syscalls
from fornada_sdk.sandbox.plan import Access, Attached, Entry, Folder, Link, Memory, Processes, Root, Text
from fornada_sdk.sandbox.syscalls import AT_EMPTY_PATH, AT_FDCWD, AT_RECURSIVE, AT_SYMLINK_NOFOLLOW

_PLACES = ("/tmp", "/mnt", "/run", "/var", "/usr")
_FLAGS = {
    Access.READ: syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV,
    Access.WRITE: syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV,
    # Read-only is about its name, owner and mode here: a device is written to all the same.
    Access.USE: syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NOEXEC,
}


def detach(path: str, access: Access) -> int:
    """A descriptor of a copy of the mount at `path`, a folder or a file, with everything mounted below it, mounted nowhere.

    It can be attached once. Needs CAP_SYS_ADMIN over the caller's mount namespace. Raises OSError that names the path.
    """
    flags = syscalls.OPEN_TREE_CLONE | syscalls.OPEN_TREE_CLOEXEC | AT_RECURSIVE
    if access is Access.WRITE:
        flags |= AT_SYMLINK_NOFOLLOW  # a link there could be a model's own
    try:
        descriptor = syscalls.open_tree(AT_FDCWD, path, flags)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    try:
        # An ordinary user's copy keeps what is mounted below (it is locked there), so all of it gets the flags.
        syscalls.mount_setattr(descriptor, set_flags=_FLAGS[access], at_flags=AT_EMPTY_PATH | AT_RECURSIVE)
    except OSError as error:
        os.close(descriptor)
        raise OSError(error.errno, error.strerror, path) from None
    return descriptor


def in_memory(path: str, *, size_bytes: int, files: int) -> int:
    """A descriptor of a new folder in memory that is mounted nowhere, to take the place of `path`, whose owner and mode it gets.

    What is written there is the memory of who writes it. Needs CAP_SYS_ADMIN over the caller's mount namespace. Raises OSError that
    names the path.
    """
    try:
        status = os.stat(path, follow_symlinks=False)
        options = {"size": str(size_bytes), "nr_inodes": str(files), "mode": f"{stat.S_IMODE(status.st_mode):o}"}
        descriptor = syscalls.new_mount("tmpfs", options, syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV)
        try:
            own(descriptor, status.st_uid, status.st_gid)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    return descriptor


def own(descriptor: int, uid: int, gid: int) -> None:
    """The top of a detached mount gets an owner. Raises OSError."""
    os.chown(f"/proc/self/fd/{descriptor}", uid, gid)  # O_PATH descriptors can't be given to fchown


def make_private() -> None:
    """What is mounted from here on stays in this mount namespace."""
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)


def build(root: Root, descriptors: Sequence[int]) -> int:
    """A descriptor of the new root, mounted somewhere in this (private) mount namespace. Raises OSError that names the entry."""
    place = next(filter(os.path.isdir, _PLACES))
    options = f"size={root.size_bytes},nr_inodes={root.files},mode=755"
    syscalls.mount("fornada", place, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    top = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    add(top, root.entries, descriptors)
    return top


def add(top: int, entries: Sequence[Entry], descriptors: Sequence[int]) -> None:
    """Puts entries into a root that isn't sealed yet. Raises OSError that names the entry."""
    umask = os.umask(0o022)
    try:
        for entry in entries:
            try:
                _put(top, entry, descriptors)
            except OSError as error:
                raise OSError(error.errno, error.strerror, entry.path) from None
    finally:
        os.umask(umask)


def change_root(top: int) -> None:
    """The new root is all that is left; it can still be added to."""
    os.fchdir(top)
    syscalls.pivot_root(".", ".")  # the old one now lies over the new one, and goes with everything in it
    syscalls.umount2(".", syscalls.MNT_DETACH)
    os.chdir("/")


def seal(top: int) -> None:
    """The root is read-only. Closes `top`."""
    os.fchdir(top)
    # By mount and not by mount_setattr: a filter can see what this one asks for, and lets a zygote ask for nothing else (seccomp.py).
    syscalls.mount(None, ".", None, syscalls.MS_MADE_READ_ONLY)
    os.chdir("/")
    os.close(top)


def _put(top: int, entry: Entry, descriptors: Sequence[int]) -> None:
    if isinstance(entry, Folder):
        os.close(_folder(top, _names(entry.path)))
        return
    *above, name = _names(entry.path)
    parent = _folder(top, above)
    try:
        if isinstance(entry, Attached):
            _attach(parent, name, descriptors[entry.descriptor])
        elif isinstance(entry, Memory):
            options = f"size={entry.size_bytes},nr_inodes={entry.files},mode={entry.mode:o}"
            _mount(parent, name, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
        elif isinstance(entry, Processes):
            _mount(parent, name, "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
        elif isinstance(entry, Link):
            os.symlink(entry.target, name, dir_fd=parent)
        else:
            _write(parent, name, entry)
    finally:
        os.close(parent)


def _attach(parent: int, name: str, mount: int) -> None:
    if stat.S_ISDIR(os.fstat(mount).st_mode):
        os.close(_folder(parent, [name]))
    else:
        try:
            os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444, dir_fd=parent))
    syscalls.move_mount(mount, parent, name)


def _mount(parent: int, name: str, kind: str, flags: int, options: str = "") -> None:
    folder = _folder(parent, [name])
    try:
        os.fchdir(folder)
        syscalls.mount("fornada", ".", kind, flags, options)
    finally:
        os.close(folder)


def _write(parent: int, name: str, entry: Text) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444, dir_fd=parent)
    try:
        content = entry.content.encode()
        if os.write(descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def _folder(top: int, names: Sequence[str]) -> int:
    """Goes down, and makes what isn't there. Follows no link: one in a folder that a model could write would lead to the host's files."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    here = os.open(".", flags, dir_fd=top)
    for name in names:
        above = here
        try:
            try:
                here = os.open(name, flags, dir_fd=above)
            except FileNotFoundError:
                os.mkdir(name, 0o755, dir_fd=above)
                here = os.open(name, flags, dir_fd=above)
        finally:
            os.close(above)
    return here


def _names(path: str) -> list[str]:
    names = [name for name in path.split("/") if name]
    if not path.startswith("/") or not names or any(name in (".", "..") for name in names):
        raise OSError(errno.EINVAL, "an entry's path must be absolute and without '.' and '..'")
    return names
