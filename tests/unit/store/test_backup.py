"""A copy of the store: whole or not there at all, and looked through before it becomes the store."""

import contextlib
import errno
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fornada.core.names import ModelName, VersionDigest
from fornada.store.backup import BackupRefused, back_up, compare, copy_into, inspect, put_back
from fornada.store.schema import APPLICATION_ID, MIGRATIONS
from fornada.store.sqlite import SqliteStore
from tests.bounds import bound, count
from tests.unit.store.conformance import A, put, version
from tests.unit.store.test_sqlite import REPOSITORY, WRITER

NEXT = "ALTER TABLE models ADD COLUMN note TEXT NOT NULL DEFAULT 'none';"
FIRST = version(digest=VersionDigest(f"{1:064x}"))
BACK_UP = """
import os, signal, sys
from pathlib import Path
from fornada.store.backup import back_up
print("begun", flush=True)
steps = int(sys.argv[3])
def told(done, of):
    global steps
    steps -= 1
    if steps == 0:
        os.kill(os.getpid(), signal.SIGKILL)
back_up(Path(sys.argv[1]), Path(sys.argv[2]), replace=True, told=told)
"""
RESTORE = """
import sys
from pathlib import Path
from fornada.store.backup import copy_into, put_back
copy, path = Path(sys.argv[1]), Path(sys.argv[2])
draft = path.with_name("draft")
draft.unlink(missing_ok=True)
draft.touch()
copy_into(copy, draft)
print("begun", flush=True)
put_back(draft, path, kept=path.with_name("kept-" + sys.argv[3]))
"""


FILES_OF_A_MEGABYTE = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder / "store.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path)
    put(opened, FIRST)
    yield opened
    opened.close()


def digests(path: Path) -> list[int]:
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        return sorted(int(digest, 16) for (digest,) in db.execute("SELECT digest FROM versions"))


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@contextlib.contextmanager
def process(code: str, *arguments: object) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, start_new_session=True
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def test_a_copy_made_while_another_process_writes_holds_all_that_was_written_before_and_stands_alone(path, tmp_path):
    target = tmp_path / "copy"
    with process(WRITER, path) as writer:
        assert writer.stdout is not None
        for _ in range(count(5, long=50)):
            last = int(writer.stdout.readline())
            back_up(path, target, replace=True)
            assert target.stat().st_mode & 0o777 == 0o600
            held = digests(target)
            assert held == list(range(1, len(held) + 1)) and len(held) >= last
            assert files(tmp_path) == ["copy", "data"], "needs no file beside it, and left none"


def test_writers_do_not_wait_for_a_copy(path, store, tmp_path):
    wrote: list[tuple[int, int]] = []

    def told(done: int, of: int) -> None:
        number = len(wrote) + 2
        if number < 5:
            put(store, version(digest=VersionDigest(f"{number:064x}")))
            wrote.append((done, of))

    back_up(path, tmp_path / "copy", told=told, step_pages=1)
    assert len(wrote) == 3 and all(done < of for done, of in wrote)
    assert len(store.versions(A)) == 4
    assert len(digests(tmp_path / "copy")) == 1, "one moment: what came later is not half in it"


def test_a_kill_at_any_moment_leaves_no_half_file_and_the_next_copy_clears_up(path, store, tmp_path):
    with store._transaction():  # some megabytes, so that the copy takes a while
        store._db.execute("INSERT INTO pieces VALUES ('big', 0, zeroblob(?))", (30_000_000,))
    target = tmp_path / "copy"
    whole = [0, 0]
    for turn in range(count(6, long=60)):
        with process(BACK_UP, path, target, 2 if turn == 0 else 0) as running:
            assert running.stdout is not None
            running.stdout.readline()
            killer = threading.Timer(0.01 * turn, running.kill)
            killer.start()
            running.wait(bound(30))
            killer.cancel()
            killer.join()
        whole[target.exists()] += 1
        if target.exists():
            assert inspect(target).bytes > 30_000_000
            target.unlink()
    back_up(path, target)
    assert files(tmp_path) == ["copy", "data"]
    assert whole[0], "no kill came in time"


def test_what_is_there_stays_unless_it_is_to_be_replaced(path, store, tmp_path):
    target = tmp_path / "copy"
    target.write_text("precious")
    with pytest.raises(BackupRefused, match="is there already; name another file, or replace it with --force"):
        back_up(path, target)
    assert target.read_text() == "precious"
    back_up(path, target, replace=True)
    assert digests(target) == [1]


@pytest.mark.parametrize("replace", [True, False])
def test_what_is_no_file_is_never_replaced(path, store, tmp_path, replace):
    # As root on a device it would be the machine's.
    pipe, unix = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(unix))
    for target in (pipe, unix):
        with pytest.raises(BackupRefused, match="is no file but a device, a pipe or a socket"):
            back_up(path, target, replace=replace)
    assert pipe.is_fifo() and unix.is_socket()


@pytest.mark.parametrize("name", ["store.sqlite", "store.sqlite-wal", "alias"])
def test_the_store_is_never_replaced_by_its_copy(path, store, name):
    (path.parent / "alias").symlink_to(path)
    with pytest.raises(BackupRefused, match="is the store itself"):
        back_up(path, path.parent / name, replace=True)
    assert len(store.versions(A)) == 1


def test_a_place_that_cannot_be_had_is_one_line_that_names_it(path, store, tmp_path):
    (tmp_path / "file").touch()
    for target, why in (
        (tmp_path / "nowhere" / "copy", f"{tmp_path / 'nowhere'}: No such file or directory"),
        (tmp_path / "file" / "copy", f"{tmp_path / 'file'}: Not a directory"),
        (tmp_path / ("long" * 100), "File name too long"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(BackupRefused, match=why) as refusal:
            back_up(path, target)
        assert ".part" not in str(refusal.value) and "\n" not in str(refusal.value)


def test_two_copies_to_one_place_do_not_meet(path, store, tmp_path):
    refused: list[BaseException] = []

    def told(done: int, of: int) -> None:
        if not refused:
            with pytest.raises(BackupRefused, match="another copy to this place is being written") as refusal:
                back_up(path, tmp_path / "copy")
            refused.append(refusal.value)

    back_up(path, tmp_path / "copy", told=told, step_pages=1)
    assert refused and digests(tmp_path / "copy") == [1]


def test_a_disk_without_room_is_said_before_and_while_it_is_written(path, store, tmp_path, monkeypatch):
    with store._transaction():
        store._db.execute("INSERT INTO pieces VALUES ('big', 0, zeroblob(?))", (3_000_000,))
    real = shutil.disk_usage
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda where: real(where)._replace(free=1_000_000))
        with pytest.raises(BackupRefused, match=r"has .* free, and the copy takes .*; free some") as refusal:
            back_up(path, tmp_path / "copy")
    assert "\n" not in str(refusal.value)
    limited = f"{FILES_OF_A_MEGABYTE}{BACK_UP}"
    with process(limited, path, tmp_path / "copy", 0) as running:
        assert running.wait(bound(30)) == 1
    assert files(tmp_path) == ["data"]


def test_a_full_disk_is_one_line(path, store, tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BackupRefused, match=f"no space left in {tmp_path}; free some"):
        back_up(path, tmp_path / "copy")
    assert files(tmp_path) == ["data"]


def newer(path: Path) -> None:
    store = SqliteStore(path, migrations=(*MIGRATIONS, NEXT))
    put(store, FIRST)
    store.close()


def foreign(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE other (x)")


def cut_short(path: Path) -> None:
    ours(path)
    os.truncate(path, path.stat().st_size // 2)


def scribbled_on(path: Path) -> None:
    ours(path)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 20_000)


def orphaned(path: Path) -> None:
    ours(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM versions")
        db.commit()


def ours(path: Path) -> None:
    store = SqliteStore(path)
    put(store, FIRST)
    store.close()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (newer, rf"newer release \(schema {len(MIGRATIONS) + 1}, this release knows {len(MIGRATIONS)}\)"),
        (foreign, "is no store of Fornada"),
        (lambda path: path.write_text("some words, and not a single page" * 100), "is no store of Fornada"),
        (lambda path: path.touch(), "is no store of Fornada"),
        (cut_short, "damaged"),
        (scribbled_on, "damaged"),
        (orphaned, "damaged"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: None, "copy: No such file or directory"),
        (lambda path: path.symlink_to(path), "copy: Too many levels of symbolic links"),
    ],
)
def test_what_may_not_become_the_store_is_refused_in_one_line(tmp_path, make, why):
    make(tmp_path / "copy")
    with pytest.raises(BackupRefused, match=why) as refusal:
        inspect(tmp_path / "copy")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TRIGGER theirs AFTER INSERT ON keys BEGIN DELETE FROM keys; END",
        "CREATE VIEW theirs AS SELECT * FROM keys",
        "CREATE TABLE theirs (x)",
        "DROP TABLE jobs",
        "ALTER TABLE keys DROP COLUMN revoked",
        "DROP INDEX hooks_by_time",
    ],
)
def test_a_copy_of_another_shape_may_not_become_the_store(tmp_path, change):
    copy = tmp_path / "copy"
    ours(copy)
    compare(copy)
    with contextlib.closing(sqlite3.connect(copy)) as db:
        db.execute(change)
        db.commit()
    with pytest.raises(BackupRefused, match="isn't made as a store of schema"):
        compare(copy)


@pytest.mark.parametrize("schema", range(1, len(MIGRATIONS)))
def test_a_copy_of_an_older_release_may(tmp_path, schema):
    SqliteStore(tmp_path / "copy", migrations=MIGRATIONS[:schema]).close()
    compare(tmp_path / "copy")


def restored(copy: Path, path: Path, kept: Path) -> bool:
    draft = path.with_name("draft")
    draft.touch()
    copy_into(copy, draft)
    return put_back(draft, path, kept=kept)


def test_a_restored_store_is_that_of_the_backup_and_the_other_is_kept_whole(path, tmp_path):
    copy, kept = tmp_path / "copy", path.parent / "kept"
    ours(path)
    back_up(path, copy)
    later = SqliteStore(path)
    later.remove_model(ModelName(A))
    later.close()
    assert restored(copy, path, kept)
    store = SqliteStore(path)
    assert len(store.versions(A)) == 1
    store.close()
    assert inspect(kept).folders == () and inspect(copy).folders == (FIRST.folder,)
    path.unlink()
    assert not restored(copy, path, path.parent / "none")


def test_a_log_that_no_one_wrote_back_goes_with_its_store_and_never_into_the_other(path, tmp_path):
    copy, kept = tmp_path / "copy", path.parent / "kept"
    ours(path)
    back_up(path, copy)
    with process(WRITER, path) as writer:
        assert writer.stdout is not None
        for _ in range(20):
            writer.stdout.readline()
        writer.kill()
        writer.wait()
    assert path.with_name("store.sqlite-wal").stat().st_size
    assert restored(copy, path, kept)
    assert digests(path) == [1] and len(digests(kept)) >= 20
    with path.open("rb") as file:
        assert int.from_bytes(file.read(72)[68:72], "big") == APPLICATION_ID


def test_a_kill_at_any_moment_of_a_restore_leaves_one_store_or_the_other(path, tmp_path):
    copy = tmp_path / "copy"
    ours(path)
    back_up(path, copy)
    later = SqliteStore(path)
    put(later, version(digest=VersionDigest(f"{2:064x}")))
    later.close()
    for turn in range(count(5, long=60)):
        with process(RESTORE, copy, path, turn) as running:
            assert running.stdout is not None
            running.stdout.readline()
            killer = threading.Timer(0.001 * turn, running.kill)
            killer.start()
            running.wait(bound(30))
            killer.cancel()
            killer.join()
        held = SqliteStore(path)
        found = sorted(int(each.digest, 16) for each in held.versions(A))
        held.close()
        assert found in ([1], [1, 2])
        if found == [1, 2]:
            continue
        assert digests(path.with_name(f"kept-{turn}")) == [1, 2]
        again = SqliteStore(path)
        put(again, version(digest=VersionDigest(f"{2:064x}")))
        again.close()


def test_a_damaged_store_is_kept_with_its_log(path, tmp_path):
    copy, kept = tmp_path / "copy", path.parent / "kept"
    ours(path)
    back_up(path, copy)
    path.write_bytes(b"not a page of it" * 1000)
    path.with_name("store.sqlite-wal").write_bytes(b"nor a log")
    assert restored(copy, path, kept)
    assert digests(path) == [1]
    assert kept.read_bytes() == b"not a page of it" * 1000
    assert path.parent.joinpath("kept-wal").read_bytes() == b"nor a log"


def test_a_store_that_another_command_has_open_is_not_replaced(path, store, tmp_path):
    copy = tmp_path / "copy"
    back_up(path, copy)
    held = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, sqlite3; d = sqlite3.connect(sys.argv[1]); d.execute('SELECT * FROM models').fetchall(); print(1, flush=True); input()",
            path,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with held:
        assert held.stdout is not None
        held.stdout.readline()
        with pytest.raises(BackupRefused, match=r"another command has .* open"):
            restored(copy, path, path.parent / "kept")
        held.kill()
    assert len(store.versions(A)) == 1
