"""The SQLite driver: the conformance suite, and what concerns its file."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fornada.core.errors import DiskFull, InternalFault
from fornada.core.names import LOCAL_ACCOUNT, ModelName
from fornada.store.schema import APPLICATION_ID, MIGRATIONS
from fornada.store.sqlite import SqliteStore, StoreUnusable, foreign_schema
from tests.bounds import bound, count
from tests.unit.store.conformance import ONE, OTHER, TWO, A, B, StoreConformance, put, version
from tests.unit.store.proof_conformance import ProofConformance

REPOSITORY = Path(__file__).parents[3]
NEXT = "ALTER TABLE models ADD COLUMN note TEXT NOT NULL DEFAULT 'none';"
BROKEN = "CREATE TABLE half (x); CREATE TABLE half (x);"

WRITER = """
import sys
from pathlib import Path
from fornada.store.sqlite import SqliteStore
from tests.unit.store.conformance import version
store = SqliteStore(Path(sys.argv[1]))
start = max((int(each.digest, 16) for each in store.versions("@test/a")), default=0)
for number in range(start + 1, 10**6):
    store.put_version(version(digest=f"{number:064x}"), label="stable", name_account="local")
    store.set_counters("@test/a", loads=number, attempts=0)
    print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def open_sqlite(path: Path) -> Iterator[Callable[..., SqliteStore]]:
    opened = []

    def make(**more: object) -> SqliteStore:
        opened.append(SqliteStore(path, **more))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for store in opened:
        store.close()


class TestSqlite(StoreConformance):
    @pytest.fixture
    def open_store(self, open_sqlite: Callable[..., SqliteStore]) -> Callable[[], SqliteStore]:
        return open_sqlite


class TestProofs(ProofConformance):
    @pytest.fixture
    def open_store(self, open_sqlite: Callable[..., SqliteStore]) -> Callable[[], SqliteStore]:
        return open_sqlite


def test_only_its_owner_reads_it(path, open_sqlite):
    put(open_sqlite(), version())
    for file in path.parent.glob("store.sqlite*"):
        assert file.stat().st_mode & 0o077 == 0, file.name


def test_a_store_of_a_newer_release_is_refused_in_one_line_and_left_alone(path, open_sqlite):
    newer = open_sqlite(migrations=(*MIGRATIONS, NEXT))
    put(newer, version())
    newer.close()
    before = path.read_bytes()
    with pytest.raises(
        StoreUnusable, match=rf"newer release \(schema {len(MIGRATIONS) + 1}, this release knows {len(MIGRATIONS)}\)"
    ) as refusal:
        SqliteStore(path)
    assert "\n" not in str(refusal.value)
    assert path.read_bytes() == before


def test_an_older_store_is_upgraded_in_place_after_a_backup(path, open_sqlite):
    older = open_sqlite()
    put(older, version())
    older.close()
    newer = open_sqlite(migrations=(*MIGRATIONS, NEXT), now=lambda: 0.0)
    assert [entry.stable for entry in newer.entries()] == [version()]
    (backup,) = path.parent.glob("*.bak")
    assert backup.name == f"store.sqlite.schema{len(MIGRATIONS)}-19700101T000000Z.bak"
    assert backup.stat().st_mode & 0o077 == 0
    kept = SqliteStore(backup)
    assert [entry.stable for entry in kept.entries()] == [version()]
    kept.close()


def test_a_store_of_the_first_release_is_upgraded(path, open_sqlite):
    open_sqlite(migrations=MIGRATIONS[:1]).close()
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO versions VALUES ('@test/a', 'aa', 'local', CAST('{\"name\": \"@test/a\"}' AS BLOB), '/x', '', 0)")
        db.execute("INSERT INTO models (name, account, stable) VALUES ('@test/a', 'local', 'aa')")
    db.close()
    (entry,) = open_sqlite().entries()
    assert entry.serving == entry.stable


def test_accounts_keep_what_their_models_had_before_proofs_were_written_down(path, open_sqlite):
    older = open_sqlite(migrations=MIGRATIONS[:10])
    weights = [{"path": "a", "sha256": "a" * 64}, {"path": "b", "sha256": "b" * 64, "source": ["pypi:x==1#y"]}]
    put(older, version(artifacts=weights), version(digest=TWO), version(B, account=OTHER, artifacts=weights[:1]))
    older.close()
    newer = open_sqlite()
    had = [(account, letter) for account in (LOCAL_ACCOUNT, OTHER) for letter in "abc" if newer.has_proved(account, letter * 64)]
    assert had == [(LOCAL_ACCOUNT, "a"), (LOCAL_ACCOUNT, "b"), (OTHER, "a")]


def test_an_upgrade_that_fails_leaves_the_old_schema(path, open_sqlite):
    older = open_sqlite()
    put(older, version())
    older.close()
    with pytest.raises(StoreUnusable):
        SqliteStore(path, migrations=(*MIGRATIONS, NEXT, BROKEN))
    assert [entry.stable for entry in open_sqlite().entries()] == [version()]


def test_a_file_that_is_no_store_is_refused_in_one_line(path, tmp_path):
    path.write_bytes(b"this is no database at all, it is a text" * 100)
    with pytest.raises(StoreUnusable, match=str(path)) as refusal:
        SqliteStore(path)
    assert "\n" not in str(refusal.value)
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE somebody (elses)")
    db.close()
    before = foreign.read_bytes()
    with pytest.raises(StoreUnusable, match="other program"):
        SqliteStore(foreign)
    assert foreign.read_bytes() == before, "what is somebody else's is left alone"
    with pytest.raises(StoreUnusable, match="can't be opened"):
        SqliteStore(tmp_path / "no folder" / "store.sqlite")


def test_a_damaged_store_is_refused_naming_the_file(path, open_sqlite):
    store = open_sqlite()
    for number in range(200):
        put(store, version(ModelName(f"m{number}")))
    store.close()
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 40000)
    with pytest.raises(StoreUnusable, match=r"store\.sqlite .*restore a backup"):
        SqliteStore(path)


def test_what_was_answered_survives_a_kill_at_any_moment(path):
    answered = kept = 0
    for _ in range(count(4, long=40)):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        assert writer.stdout
        killer = threading.Timer(bound(30), writer.kill)
        killer.start()
        for line in writer.stdout:
            answered = int(line)
            if answered % 7 == 0:
                writer.send_signal(signal.SIGKILL)
                break
        rest = [int(line) for line in writer.stdout]
        answered = max([answered, *rest])
        writer.wait()
        writer.stdout.close()
        killer.cancel()
        store = SqliteStore(path)
        (entry,) = store.entries()
        assert store.counters(A)[0] >= answered
        # What was written and not answered may be there, and then stays. The counters are a write of their own.
        assert int(entry.stable.digest, 16) >= max(answered, kept)
        kept = int(entry.stable.digest, 16)
        store.close()


def test_only_counters_leave_the_disk_behind_and_only_for_a_moment(path, open_sqlite):
    store = open_sqlite()
    put(store, version())
    store.set_counters(A, loads=1, attempts=1)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    store._db.execute("PRAGMA query_only = ON")
    with pytest.raises(InternalFault):
        store.set_counters(A, loads=2, attempts=2)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_full_disk_is_named(path, open_sqlite):
    store = open_sqlite()
    put(store, version())
    store._db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(DiskFull, match=str(path.parent)):
        for number in range(500):
            put(store, version(ModelName(f"m{number}")))
    assert store.entries()[0].stable == version()


def test_a_full_disk_is_named_at_a_start_too(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("a small file system can't be mounted here (needs root)")
    try:
        SqliteStore(folder / "store.sqlite").close()
        with contextlib.suppress(OSError), open(folder / "ballast", "wb", buffering=0) as ballast:
            while True:
                ballast.write(b"x" * 4096)
        with pytest.raises(StoreUnusable, match=f"no space left on the disk that holds {folder}"):
            SqliteStore(folder / "store.sqlite")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_data_directory_may_be_moved(tmp_path):
    before = tmp_path / "before"
    before.mkdir()
    store = SqliteStore(before / "store.sqlite")
    inside = version()
    put(store, type(inside)(**{**{f: getattr(inside, f) for f in inside.__struct_fields__}, "folder": str(before / "bundles" / ONE)}))
    store.close()
    os.rename(before, tmp_path / "after")
    store = SqliteStore(tmp_path / "after" / "store.sqlite")
    assert store.entries()[0].stable.folder == str(tmp_path / "after/bundles" / ONE)
    store.close()


def test_a_store_in_use_is_shared_with_a_release_of_the_same_schema_alone(path, open_sqlite):
    store = open_sqlite()
    put(store, version())
    assert foreign_schema(path) == ""
    assert "newer release" in foreign_schema(path, known=len(MIGRATIONS) - 1)
    assert "stop the node" in foreign_schema(path, known=len(MIGRATIONS) + 1)
    put(store, version(ModelName("@test/second")))
    assert len(store.entries()) == 2, "looking changes nothing"
    store.close()
    path.write_bytes(b"no database" * 100)
    assert "can't be read" in foreign_schema(path)


def test_the_file_says_whose_it_is(path, open_sqlite):
    open_sqlite().close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    db.close()
