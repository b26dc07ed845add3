"""Root's commands in a data directory of somebody else are done as that user.

Its owner chooses the names in there, also while a command runs: with root's rights a link of his would lead root's writing, and the change of
owner and mode that goes with it, to any file of the machine.
"""

import contextlib
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from fornada.app.data_directory import DataDirectoryRefused

LEVELS = 2
"""Of folders in which root's commands of old may have left something beside what is the user's."""


@contextlib.contextmanager
def as_its_owner(folder: Path) -> Iterator[None]:
    """What is done within is done with the rights of the folder's owner, and what is made there is his. Nothing changes for anybody but root,
    nor where the folder is root's or yet to be made. Raises DataDirectoryRefused."""
    owner = _other(folder)
    if owner is None:
        yield
        return
    _give_to(owner, folder)
    group, groups = os.getegid(), os.getgroups()
    try:
        os.setgroups(_groups(owner))
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
    except OSError as error:
        _become_root(group, groups)
        raise DataDirectoryRefused(f"{folder} is uid {owner.st_uid}'s ({error.strerror}); run this as that user") from None
    try:
        yield
    finally:
        _become_root(group, groups)


@contextlib.contextmanager
def as_the_caller() -> Iterator[None]:
    """Within `as_its_owner`: with the rights of who called, to read what is his."""
    user = os.geteuid()
    if os.getuid() != 0 or user == 0:
        yield
        return
    os.seteuid(0)
    try:
        yield
    finally:
        os.seteuid(user)


def _other(folder: Path) -> os.stat_result | None:
    """The folder, where it is another user's and root asks."""
    if os.geteuid() != 0:
        return None
    try:
        found = folder.stat()
    except OSError:
        return None
    return found if found.st_uid != 0 else None


def _groups(owner: os.stat_result) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(owner.st_uid).pw_name, owner.st_gid)
    except KeyError:
        return [owner.st_gid]


def _become_root(group: int, groups: list[int]) -> None:
    os.seteuid(0)
    os.setegid(group)
    os.setgroups(groups)


def _give_to(owner: os.stat_result, folder: Path) -> None:
    """Of the first two levels and below what is root's own in them. The user may change names meanwhile: every one is looked up in a folder
    that is open already, no link is followed, and a file with a second name, which may be somebody else's file, is left alone."""
    for path, folders, files, descriptor in os.fwalk(folder):
        deep = len(Path(path).relative_to(folder).parts) >= LEVELS - 1
        for name in [*folders, *files]:
            with contextlib.suppress(OSError):  # it is gone by now
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if found.st_uid == 0 and (name in folders or found.st_nlink == 1):
                    os.chown(name, owner.st_uid, owner.st_gid, dir_fd=descriptor, follow_symlinks=False)
                elif deep and name in folders:
                    folders.remove(name)
