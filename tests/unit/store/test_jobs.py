"""Jobs and their files in the SQLite file: the conformance suites, kill -9, and a full disk."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fornada.core.errors import DiskFull
from fornada.core.jobs import JobId, Order, Status
from fornada.store.sqlite import SqliteStore
from tests.bounds import bound, count
from tests.unit.store.file_conformance import FileStoreConformance
from tests.unit.store.job_conformance import ANSWER, ONE, JobStoreConformance, job, order, put

REPOSITORY = Path(__file__).parents[3]
WRITER = """
import sys
from pathlib import Path
from fornada.core.jobs import JobId
from fornada.store.sqlite import SqliteStore
from tests.unit.store.job_conformance import ANSWER, job, put
store = SqliteStore(Path(sys.argv[1]))
start = len(store.unfinished_jobs())
for number in range(start, 10**6):
    put(store, job(JobId(str(number)), total=3, created=float(number)))
    store.end_item(JobId(str(number)), 1, ANSWER)
    print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def open_jobs(path: Path) -> Iterator[Callable[[], SqliteStore]]:
    opened: list[SqliteStore] = []

    def reopen() -> SqliteStore:
        while opened:
            opened.pop().close()
        opened.append(SqliteStore(path))
        return opened[-1]

    yield reopen
    for store in opened:
        store.close()


class TestFiles(FileStoreConformance):
    @pytest.fixture
    def open_files(self, open_jobs: Callable[[], SqliteStore]) -> Callable[[], SqliteStore]:
        return open_jobs


class TestSqlite(JobStoreConformance):
    @pytest.fixture
    def open_jobs(self, open_jobs: Callable[[], SqliteStore]) -> Callable[[], SqliteStore]:
        return open_jobs


def test_what_was_accepted_survives_a_kill_at_any_moment(path: Path):
    answered: set[int] = set()
    for _ in range(count(3, long=30)):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        assert writer.stdout
        killer = threading.Timer(bound(30), writer.kill)
        killer.start()
        for line in writer.stdout:
            answered.add(int(line))
            if len(answered) % 7 == 0:
                writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        killer.cancel()
        store = SqliteStore(path)
        kept = store.unfinished_jobs()
        assert [each.id for each in kept] == [str(number) for number in range(len(kept))]
        assert len(kept) > max(answered)
        for number in answered:
            statuses = [item.status for item in store.items(JobId(str(number)))]
            assert statuses == [Status.QUEUED, Status.COMPLETED, Status.QUEUED]
        assert len(store.items(kept[-1].id)) == 3, "half a job"
        store.close()


def test_accepted_is_on_disk_before_it_is_answered(open_jobs: Callable[[], SqliteStore]):
    """SQLite's full mode is what syncs: it is on while a job is written, and off only for what may be done again."""
    store = open_jobs()
    modes: list[str] = []
    store._db.set_trace_callback(lambda statement: modes.append(statement) if "synchronous" in statement else None)
    put(store, job())
    assert modes == []
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    modes.clear()
    store.end_item(ONE, 0, ANSWER)
    assert modes == ["PRAGMA synchronous = NORMAL", "PRAGMA synchronous = FULL"]
    store._db.set_trace_callback(None)


def test_a_full_disk_refuses_what_is_new_and_keeps_what_was_accepted(path: Path, open_jobs: Callable[[], SqliteStore]):
    store = open_jobs()
    put(store, job())
    store._db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(DiskFull, match=str(path.parent)):
        for number in range(100):
            large = job(JobId(f"n{number}"))
            asks = [each.__class__(each.model, b"x" * 100_000) for each in order(large).asks]
            store.put_job(large, Order(large.account, "k", "/", "a", asks))
    assert store.job(ONE) == job()
    store._db.execute("PRAGMA max_page_count = 1000000")
    assert store.end_item(ONE, 0, ANSWER)
    for each in store.unfinished_jobs():
        assert len(store.items(each.id)) == each.total
