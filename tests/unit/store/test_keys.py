"""Keys in the store, and how another process hears of a change."""

import contextlib
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fornada.core.keys import Key, KeyId, Role, new_key
from fornada.core.names import AccountId
from fornada.store.keys import has_keys, mark_path
from fornada.store.mark import watch
from fornada.store.sqlite import SqliteStore, StoreUnusable
from tests.bounds import bound

REPOSITORY = Path(__file__).parents[3]
Open = Callable[[], SqliteStore]


def key(account: str = "acc", role: Role = Role.USER, models: tuple[str, ...] = ()) -> Key:
    return new_key(AccountId(account), role, now=1764000000.25, chance=secrets.token_bytes, models=models)[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def open_store(path: Path) -> Iterator[Open]:
    with contextlib.ExitStack() as stack:

        def make() -> SqliteStore:
            store = SqliteStore(path)
            stack.callback(store.close)
            return store

        yield make


def test_keys_come_back_as_they_were_put(open_store: Open):
    wanted = [key(), key("other", Role.ADMIN, models=("@a/b", "@a/ü c"))]
    store = open_store()
    assert store.keys() == []
    for each in wanted:
        store.put_key(each)
    assert open_store().keys() == wanted


def test_a_revoked_key_stays_and_is_revoked_once(open_store: Open):
    store, one = open_store(), key()
    store.put_key(one)
    first = store.revoke_key(one.id, now=7.0)
    assert first is not None and first.revoked == 7.0 and not first.valid
    assert store.revoke_key(one.id, now=8.0) == first
    assert store.revoke_key(KeyId("f" * 16), now=8.0) is None
    assert store.keys() == [first]


def test_keys_can_be_forgotten(open_store: Open):
    store = open_store()
    store.put_key(key())
    store.put_key(key())
    assert store.forget_keys() == 2
    assert store.keys() == [] and store.forget_keys() == 0


PUTS = """
import sys
from pathlib import Path
from tests.unit.store.test_keys import key
from fornada.store.sqlite import SqliteStore, StoreUnusable
store = SqliteStore(Path(sys.argv[1]))
store.put_key(key())
store.close()
"""


def test_another_process_s_change_is_seen_by_the_mark_and_by_the_version(path: Path, open_store: Open):
    store = open_store()
    mark = watch(mark_path(path))
    seen, version = mark[0], store.keys_version()
    assert (mark[0], store.keys_version()) == (seen, version)
    subprocess.run([sys.executable, "-c", PUTS, str(path)], cwd=REPOSITORY, check=True, timeout=bound(30))
    assert mark[0] != seen
    assert store.keys_version() != version
    assert len(store.keys()) == 1
    assert mark_path(path).stat().st_mode & 0o077 == 0


def test_whether_there_is_a_key_can_be_told_of_any_file(path: Path, tmp_path: Path, open_store: Open):
    assert not has_keys(path)
    store, one = open_store(), key()
    assert not has_keys(path)
    store.put_key(one)
    assert has_keys(path)
    store.revoke_key(one.id, now=1.0)
    assert not has_keys(path)
    (tmp_path / "no store").write_bytes(b"text")
    assert not has_keys(tmp_path / "no store")
    with contextlib.closing(sqlite3.connect(tmp_path / "old")) as db:
        db.execute("CREATE TABLE models (name)")
    assert not has_keys(tmp_path / "old")


def test_a_mark_that_can_not_be_had_is_said_in_one_line(tmp_path: Path):
    with pytest.raises(StoreUnusable, match="can't be used: No such file or directory"):
        watch(tmp_path / "no folder" / "mark")
