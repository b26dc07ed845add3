"""`fornada backup` and `fornada restore`: of a data directory's store, with or without a node; and when it was last done."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from fornada.app.data_directory import STORE, DataDirectoryRefused, locked
from fornada.app.keys import note
from fornada.app.owner import as_its_owner, as_the_caller
from fornada.app.webhook_secret import SECRET
from fornada.node.whole_path import whole_path
from fornada.store.backup import BackupRefused, Contents, back_up, compare, copy_into, inspect, put_back

LAST = "last-backup.json"
"""In the data directory; `fornada doctor` reads it."""
DRAFT = f"{STORE}.restoring"


class LastBackup(msgspec.Struct, frozen=True):
    """When (seconds since 1970) and where to."""

    at: float
    path: str


class Restored(NamedTuple):
    """`kept` is where the store that was there lies now; `missing` are folders of models that the restored one names."""

    contents: Contents
    kept: Path | None
    missing: tuple[str, ...]


def backup(folder: Path, target: Path, *, replace: bool, told: Callable[[int, int], None]) -> Contents:
    """Raises BackupRefused."""
    folder = whole_path(folder)
    try:
        there = (folder / STORE).exists()
    except OSError as error:
        raise BackupRefused(f"{folder}: {error.strerror}; run this as the user of the node") from None
    if not there:
        raise BackupRefused(f"there is no store in {folder}: no node has used it yet; --data-dir names the data directory of a node")
    contents = back_up(folder / STORE, whole_path(target), replace=replace, told=told)
    _remember(folder, LastBackup(at=time.time(), path=str(whole_path(target))))
    with contextlib.suppress(OSError, DataDirectoryRefused):
        note(folder, "backUpStore", file=str(whole_path(target)))
    return contents


def restore(source: Path, folder: Path) -> Restored:
    """Raises BackupRefused, having changed nothing."""
    source, folder = whole_path(source), whole_path(folder)
    inspect(source)
    try:
        with as_its_owner(folder), locked(folder):
            draft, kept = folder / DRAFT, folder / f"{STORE}.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
            if kept.exists():
                raise BackupRefused(f"{kept} is there already; wait a second and try again")
            try:
                draft.unlink(missing_ok=True)
                os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                with as_the_caller():
                    copy_into(source, draft)
                # Of the copy, which nobody else can change or cut short any more.
                contents = inspect(draft)
                compare(draft)
                there = put_back(draft, folder / STORE, kept=kept)
            except OSError as error:
                raise BackupRefused(f"{error.filename or folder} can't be written: {error.strerror}") from None
            finally:
                with contextlib.suppress(OSError):
                    draft.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                note(folder, "restoreStore", file=str(source), kept=str(kept) if there else None)
            missing = tuple(name for name in contents.folders if not (folder / name).exists())
            return Restored(contents, kept if there else None, missing)
    except DataDirectoryRefused as refusal:
        raise BackupRefused(str(refusal)) from None


def last_backup(folder: Path) -> LastBackup | None:
    """None where none was made, or this user may not see it."""
    try:
        return msgspec.json.decode((folder / LAST).read_bytes(), type=LastBackup)
    except (OSError, msgspec.DecodeError):
        return None


def outside(folder: Path) -> tuple[Path, ...]:
    """What a backup of everything needs beside the store: the deployed models' folders, and what signs webhooks where the node made it."""
    return tuple(path for path in (whole_path(folder) / "bundles", whole_path(folder) / SECRET) if _holds_something(path))


def _holds_something(path: Path) -> bool:
    return any(path.iterdir()) if path.is_dir() else path.exists()


def _remember(folder: Path, last: LastBackup) -> None:
    # It is for doctor alone: a backup that was made is none the worse for a data directory that can't be written.
    draft = folder / f"{LAST}.new"
    with contextlib.suppress(OSError, DataDirectoryRefused), as_its_owner(folder):
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(last))
        draft.rename(folder / LAST)
