"""A store's copy in one file, made while others write; and what has to be true of a file before it may become the store."""

import contextlib
import errno
import fcntl
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fornada.core.resources import format_size
from fornada.store.file import BUSY_S
from fornada.store.schema import APPLICATION_ID, MIGRATIONS

STEP_PAGES = 2048
"""Pages between two words of progress: 8 MiB."""
SPARE_BYTES = 1 << 20
"""What must be free beyond the store's own size: what is written to it meanwhile."""
COMPANIONS = ("-wal", "-shm", "-journal")
"""What SQLite may put beside a file, by its name."""

Told = Callable[[int, int], None]


class BackupRefused(Exception):
    """Nothing was changed. The message is one line: what is in the way, and what to do."""


class Contents(NamedTuple):
    """What a copy holds."""

    bytes: int
    schema: int
    keys: int
    jobs: int
    folders: tuple[str, ...]
    """Of the models' versions, which lie outside the store: relative to its folder where they lie below it."""


def back_up(
    store: Path, target: Path, *, replace: bool = False, told: Told = lambda done, of: None, step_pages: int = STEP_PAGES
) -> Contents:
    """Writes what `store` holds at one moment to `target`, mode 0600, on disk when this returns; writers go on meanwhile. `told` hears the
    pages that are done, and of how many. Until the end there is nothing at `target`, or what was there. Raises BackupRefused."""
    target = target.absolute()
    with _one_line(store, target):
        os.stat(f"{target.parent}/.")  # said of the folder itself, and not of the draft in it
        if target.is_dir():
            raise BackupRefused(f"{target} is a folder; name the file that is to be written")
        if os.path.lexists(target) and stat.S_IFMT(os.lstat(target).st_mode) not in (stat.S_IFREG, stat.S_IFLNK):
            # The copy takes the place of what is there: of /dev/null, for the whole machine, where root says so.
            raise BackupRefused(f"{target} is no file but a device, a pipe or a socket; name the file that is to be written")
        if target.exists() and (target.resolve() in _own(store) or (store.exists() and target.samefile(store))):
            raise BackupRefused(f"{target} is the store itself; name another file")
        if os.path.lexists(target) and not replace:
            raise _exists(target)
        with _draft(target) as draft:
            copy_into(store, draft, told=told, step_pages=step_pages)
            contents = inspect(draft)
            _on_disk(draft)
            _put(draft, target, replace=replace)
    return contents


def copy_into(store: Path, draft: Path, *, told: Told = lambda done, of: None, step_pages: int = STEP_PAGES) -> None:
    """What `store` holds at one moment, to the empty file `draft`, which needs none beside it then. Raises BackupRefused."""
    with _one_line(store, draft), contextlib.closing(_opened(store)) as source:
        size = _size(source)
        free = shutil.disk_usage(draft.parent).free
        if free < size + SPARE_BYTES:
            raise BackupRefused(
                f"{draft.parent} has {format_size(free)} free, and the copy takes {format_size(size)}; free some, or write it elsewhere"
            )
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as copy:
            copy.execute("PRAGMA journal_mode = OFF")
            copy.execute("PRAGMA synchronous = OFF")  # nobody looks at it before all of it is written out
            # The reader's own transaction keeps the moment: without it each write of the node would begin the copy again.
            source.execute("BEGIN")
            source.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
            source.backup(copy, pages=step_pages, progress=lambda _, left, of: told(of - left, of), sleep=0)
            source.execute("ROLLBACK")
            copy.execute("PRAGMA journal_mode = DELETE")  # the header says WAL, as the store's: readers would make files beside it


def inspect(path: Path, *, known: int = len(MIGRATIONS)) -> Contents:
    """What the copy at `path` holds. Raises BackupRefused where it is damaged, no store of ours, or of a newer release than this one."""
    with _one_line(path, path):
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))  # the system says why it can't be, SQLite doesn't
        if path.is_dir():
            raise BackupRefused(f"{path} is a folder; name a file that 'fornada backup' wrote")
    with _one_line(path, path), contextlib.closing(_opened(path)) as db:
        owner = db.execute("PRAGMA application_id").fetchone()[0]
        schema = db.execute("PRAGMA user_version").fetchone()[0]
        if owner != APPLICATION_ID or not schema:
            raise BackupRefused(f"{path} is no store of Fornada; name a file that 'fornada backup' wrote")
        if schema > known:
            raise BackupRefused(
                f"{path} was written by a newer release (schema {schema}, this release knows {known}); restore it with that release"
            )
        (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict == "ok" and db.execute("PRAGMA foreign_key_check").fetchone():
            verdict = "rows name others that aren't there"
        if verdict != "ok":
            raise BackupRefused(f"{path} is damaged ({' '.join(str(verdict).split())[:200]}); use another backup")
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        return Contents(
            bytes=_size(db),
            schema=schema,
            keys=_count(db, "keys WHERE revoked IS NULL") if "keys" in tables else 0,
            jobs=_count(db, "jobs WHERE ended = 0") if "jobs" in tables else 0,
            folders=tuple(folder for (folder,) in db.execute("SELECT DISTINCT folder FROM versions ORDER BY folder")),
        )


def compare(path: Path) -> None:
    """Raises BackupRefused where the inspected copy at `path` lacks a table of its schema, or holds what none of ours made: a trigger or a view
    of somebody's would run in the node."""
    with _one_line(path, path), contextlib.closing(_opened(path)) as db:
        schema = db.execute("PRAGMA user_version").fetchone()[0]
        other = _shape(db) ^ _shape_of(schema)
    if other:
        kind, name, _ = min(other)
        raise BackupRefused(f"{path} isn't made as a store of schema {schema} is (the {kind} '{name}'); use another backup")


def _shape(db: sqlite3.Connection) -> frozenset[tuple[str, str, tuple[str, ...]]]:
    """Kind and name of all that is in it, with the columns of tables."""
    made = db.execute("SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'").fetchall()
    return frozenset(
        (kind, name, tuple(row[0] for row in db.execute("SELECT name FROM pragma_table_info(?)", (name,)))) for kind, name in made
    )


def _shape_of(schema: int) -> frozenset[tuple[str, str, tuple[str, ...]]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        for migration in MIGRATIONS[:schema]:
            db.executescript(migration)
        return _shape(db)


def put_back(draft: Path, store: Path, *, kept: Path) -> bool:
    """Makes the inspected `draft` the store; what was there stays at `kept`, and whether there was anything is told. Nobody may have the
    store open. A kill at any moment leaves the old store or the new one, and neither's log beside the other. Raises BackupRefused."""
    with _one_line(store, store):
        _on_disk(draft)
        there = store.exists()
        if there:
            _keep(store, kept)
        for suffix in COMPANIONS:
            store.with_name(store.name + suffix).unlink(missing_ok=True)
        _folder_on_disk(store.parent)
        os.replace(draft, store)
        _folder_on_disk(store.parent)
    return there


def _keep(store: Path, kept: Path) -> None:
    """Gives the store a second name, and its log too where that can't be written back into it: SQLite throws away what it can't read."""
    os.link(store, kept)
    logs = [
        (beside, kept.with_name(kept.name + suffix)) for suffix in COMPANIONS if (beside := store.with_name(store.name + suffix)).exists()
    ]
    for beside, name in logs:
        os.link(beside, name)
    try:
        with contextlib.closing(sqlite3.connect(store, timeout=BUSY_S)) as db:
            # Another mode is to be had only where nobody else has it open: `fornada keys` would write into what isn't the store any more.
            db.execute("PRAGMA journal_mode = DELETE").fetchone()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
            return  # damaged
        for name in (kept, *(name for _, name in logs)):
            name.unlink()
        raise BackupRefused(f"another command has {store} open; wait for it and try again") from None
    for _, name in logs:
        name.unlink()


@contextlib.contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """An empty file of mode 0600 beside `target`; gone afterwards, unless it was put there. One that a killed copy left is removed."""
    draft = target.with_name(f".{target.name}.part")
    with _one_line(target, target):
        _clear(draft)
        held = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield draft
    finally:
        for suffix in ("", *COMPANIONS):
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)
        os.close(held)


def _clear(draft: Path) -> None:
    """Never cuts it: a kill may have come when it was `target` already, by its other name."""
    try:
        held = os.open(draft, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BackupRefused(f"another copy to this place is being written ({draft}); wait for it, or name another file") from None
    else:
        for suffix in ("", *COMPANIONS):
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)
    finally:
        os.close(held)


def _put(draft: Path, target: Path, *, replace: bool) -> None:
    with _one_line(target, target):
        if replace:
            os.replace(draft, target)
        else:
            try:
                os.link(draft, target)
            except FileExistsError:
                raise _exists(target) from None
            except OSError as error:  # a file system without second names
                if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                    raise
                os.rename(draft, target)
        _folder_on_disk(target.parent)


def _exists(target: Path) -> BackupRefused:
    return BackupRefused(f"{target} is there already; name another file, or replace it with --force")


def _own(store: Path) -> set[Path]:
    whole = store.resolve()
    return {whole, *(whole.with_name(whole.name + suffix) for suffix in COMPANIONS)}


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S, isolation_level=None)


def _size(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA page_count").fetchone()[0]) * int(db.execute("PRAGMA page_size").fetchone()[0])


def _count(db: sqlite3.Connection, what: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {what}").fetchone()[0])


def _on_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_folder_on_disk = _on_disk


@contextlib.contextmanager
def _one_line(source: Path, written: Path) -> Iterator[None]:
    """Raises BackupRefused for what the disk and SQLite say."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code == sqlite3.SQLITE_FULL:
            raise BackupRefused(f"no space left in {written.parent}; free some, or write it elsewhere") from None
        if code == sqlite3.SQLITE_NOTADB:
            raise BackupRefused(f"{source} is no store of Fornada; name a file that 'fornada backup' wrote") from None
        if code & 0xFF == sqlite3.SQLITE_CORRUPT:
            raise BackupRefused(f"{source} is damaged ({error}); use another backup") from None
        raise BackupRefused(f"{source} can't be copied to {written.parent}: {error}") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BackupRefused(f"no space left in {written.parent}; free some, or write it elsewhere") from None
        where = str(error.filename or written).removesuffix("/.")
        raise BackupRefused(f"{where}: {error.strerror}; name a file that this user may read or write there") from None
