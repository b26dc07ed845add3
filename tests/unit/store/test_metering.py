"""Use is counted once, whatever process is killed at whatever moment."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fornada.core.errors import DiskFull
from fornada.core.keys import KeyId
from fornada.core.names import AccountId, ModelName
from fornada.core.usage import DAY_S, Amount, Use
from fornada.store import journal
from fornada.store.journal import BEGAN, ENDED, NAME, SIZE, Journal
from fornada.store.metering import Metering
from fornada.store.sqlite import SqliteStore
from tests.bounds import count

REPOSITORY = Path(__file__).parents[3]
ONE = Use(AccountId("acc"), KeyId("k1"), ModelName("@a/b"))
TWO = Use(AccountId("other"), KeyId(""), ModelName("@ü/c d"))


class Silent:
    """An EventLog that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **fields: self.told.append(event)


class Node:
    """A data directory, and one control plane after another on it."""

    def __init__(self, folder: Path, *, segment: int = 64 * SIZE) -> None:
        self.folder = folder
        self.segment = segment
        self.now = 20000.5 * DAY_S
        self.log = Silent()
        self.stack = contextlib.ExitStack()

    def start(self, epoch: int, *, beside: bool = False) -> Metering:
        store = SqliteStore(self.folder / "store.sqlite")
        self.stack.callback(store.close)
        made = Metering(store, self.folder / "usage", epoch=epoch, wall=lambda: self.now, log=self.log, segment=self.segment)
        if not beside:
            made.take_over()
        return made


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    with made.stack:
        yield made


def requests(metering: Metering, account: str | None = None) -> dict[tuple[str, str], int]:
    rows = metering.rows(None if account is None else AccountId(account))
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        found[row.account, row.model] = found.get((row.account, row.model), 0) + row.requests
    return found


def test_what_ended_is_summed_by_account_key_model_and_day(node: Node):
    metering = node.start(1)
    for call, use in enumerate([ONE, ONE, TWO, ONE]):
        if call == 3:
            node.now += DAY_S
        metering.began(call, use)
        metering.ended(call, use, Amount(1, 10, 2, 0.5, 1.25))
    first, second, third = metering.rows(None)
    assert (first.day, first.account, first.key, first.model, first.requests) == ("2024-10-05", "acc", "k1", "@a/b", 1)
    assert (second.requests, second.input_tokens, second.output_tokens, second.device_seconds, second.neurons) == (2, 20, 4, 1.0, 2.5)
    assert (third.account, third.key, third.model, third.day) == ("other", "", "@ü/c d", "2024-10-04")
    assert metering.rows(AccountId("other")) == [third]


def test_what_never_ended_or_ended_with_nothing_isnt_counted(node: Node):
    metering = node.start(1)
    metering.began(1, ONE)
    metering.began(2, ONE)
    metering.dropped(2)
    assert metering.rows(None) == []


def test_a_successor_counts_what_its_predecessor_had_written_and_what_that_had_sent(node: Node):
    before = node.start(1)
    for call in range(100):
        before.began(call, ONE)
        if call % 10:
            before.ended(call, ONE, Amount(1))
    after = node.start(2)  # the other one was killed
    assert requests(after) == {("acc", "@a/b"): 90}
    assert [call for call in range(100) if after.orphan(call)] == list(range(0, 100, 10))
    for call in (0, 10):
        after.ended(call, after.orphan(call) or TWO, Amount(1))
    third = node.start(3)
    assert requests(third) == {("acc", "@a/b"): 92}
    assert third.orphan(0) is None and third.orphan(1) is None and third.orphan(20) == ONE
    assert [path for path in (node.folder / "usage").iterdir() if path.name != "life"] == [third._journal.path]  # type: ignore[union-attr]


def test_when_the_keeper_was_killed_nothing_of_before_can_come(node: Node):
    before = node.start(1)
    before.began(1, ONE)
    before.began(2, ONE)
    before.ended(2, ONE, Amount(1))
    after = node.start(1)
    assert requests(after) == {("acc", "@a/b"): 1}
    assert after.orphan(1) is None, "another request has this id by now"


def test_two_control_planes_count_side_by_side_and_an_answer_that_moves_over_counts_once(node: Node):
    old = node.start(1)
    for call in (1, 2, 3):
        old.began(call, ONE)
    new = node.start(2, beside=True)
    new.began(1 << 40, ONE)
    new.ended(1 << 40, ONE, Amount(1))
    old.ended(1, ONE, Amount(1))
    assert new.orphan(1) is None, "the old one has counted it"
    assert new.orphan(2) == ONE
    new.ended(2, ONE, Amount(1))
    assert new.orphan(2) is None
    old.close()
    new.take_over()
    assert new.orphan(2) is None and new.orphan(3) == ONE
    new.ended(3, ONE, Amount(1))
    assert requests(new) == {("acc", "@a/b"): 4}
    assert requests(node.start(3)) == {("acc", "@a/b"): 4}


@settings(max_examples=count(30, long=300), deadline=None)
@given(st.data())
def test_any_order_of_requests_kills_and_failures_of_the_store_counts_each_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    node = Node(tmp_path_factory.mktemp("usage"), segment=data.draw(st.sampled_from([12, 40, 400])) * SIZE)
    with node.stack:
        epoch, wanted, call = 1, 0, 0
        metering = node.start(epoch)
        running: set[int] = set()
        for step in data.draw(st.lists(st.sampled_from(["send", "end", "kill", "sum", "full", "drop", "keeper"]), max_size=60)):
            match step:
                case "send":
                    call += 1
                    metering.began(call, data.draw(st.sampled_from([ONE, TWO])))
                    running.add(call)
                case "end" if running:
                    mine = data.draw(st.sampled_from(sorted(running)))
                    running.discard(mine)
                    use = metering.orphan(mine) or metering._open.get(mine)
                    assert use is not None, "whoever sent it, it is known"
                    metering.ended(mine, use, Amount(1))
                    wanted += 1
                case "drop" if running:
                    mine = data.draw(st.sampled_from(sorted(running)))
                    running.discard(mine)
                    metering.dropped(mine)
                case "kill":
                    epoch += 1
                    metering = node.start(epoch)
                case "keeper":
                    epoch = 1
                    running.clear()
                    metering = node.start(epoch)
                case "sum":
                    metering.sum_up()
                case "full":
                    metering._store._db.execute("PRAGMA query_only = ON")
                    with contextlib.suppress(Exception):
                        metering.sum_up()
                    for _ in range(20):  # a journal runs full meanwhile
                        call += 1
                        metering.began(call, ONE)
                        metering.ended(call, ONE, Amount(1))
                        wanted += 1
                    metering._store._db.execute("PRAGMA query_only = OFF")
        assert sum(requests(metering).values()) == wanted
        assert sum(requests(node.start(epoch + 1)).values()) == wanted


WRITER = """
import os, sys
from pathlib import Path
from tests.unit.store.test_metering import ONE, TWO, Amount, Node
node = Node(Path(sys.argv[1]), segment=200 * 40)
epoch = int(sys.argv[2])
metering = node.start(epoch)
call = epoch << 40
while True:
    call += 1
    metering.began(call, ONE)
    metering.ended(call, ONE, Amount(1))
    os.write(1, b"x")
    if call % 97 == 0:
        metering.sum_up()
"""


def test_kill_9_at_any_moment_loses_nothing_and_counts_nothing_twice(tmp_path: Path):
    counted = 0
    rounds = count(4, long=60)
    for epoch in range(1, rounds + 1):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(epoch)], stdout=subprocess.PIPE, cwd=REPOSITORY)
        assert writer.stdout is not None
        counted += len(os.read(writer.stdout.fileno(), 1))
        wanted = random.randint(1, 800)
        while wanted > 0:
            got = len(os.read(writer.stdout.fileno(), min(wanted, 4096)))
            counted, wanted = counted + got, wanted - got
        writer.send_signal(signal.SIGKILL)
        counted += len(writer.stdout.read())
        writer.wait()
        writer.stdout.close()
    node = Node(tmp_path)
    with node.stack:
        found = sum(requests(node.start(rounds + 1)).values())
    # What was written and not yet told on is counted, too: one at most of each that was killed.
    assert counted <= found <= counted + rounds


def test_spent_neurons_are_those_of_the_day_and_known_at_once(node: Node):
    metering = node.start(1)
    metering.began(1, ONE)
    metering.ended(1, ONE, Amount(1, neurons=5.0))
    other = Use(ONE.account, KeyId("k2"), ONE.model)
    metering.began(2, other)
    metering.ended(2, other, Amount(1, neurons=2.0))
    assert (metering.spent(ONE.account, ONE.key), metering.spent(ONE.account, None)) == (5.0, 7.0)
    metering.sum_up()
    again = node.start(2)
    assert (again.spent(ONE.account, ONE.key), again.spent(ONE.account, None)) == (5.0, 7.0)
    node.now += DAY_S
    assert (again.spent(ONE.account, ONE.key), again.spent(ONE.account, None)) == (0.0, 0.0)


def test_without_room_for_a_journal_it_goes_into_the_store_all_the_same(node: Node):
    node.segment = 1 << 60  # no disk has it
    metering = node.start(1)
    metering.began(1, ONE)
    metering.ended(1, ONE, Amount(1))
    assert requests(metering) == {("acc", "@a/b"): 1}
    assert "usage.no_journal" in node.log.told


def test_a_store_that_fails_is_said_and_what_was_counted_stays(node: Node):
    metering = node.start(1)
    metering.began(1, ONE)
    metering.ended(1, ONE, Amount(1))
    metering._store._db.execute("PRAGMA query_only = ON")
    with pytest.raises(Exception, match="store"):
        metering.rows(None)
    metering._store._db.execute("PRAGMA query_only = OFF")
    assert requests(metering) == {("acc", "@a/b"): 1}


def test_a_slot_that_was_not_finished_ends_what_is_read(tmp_path: Path):
    written = Journal(tmp_path / "one", size=10 * SIZE)
    assert written.name(0, "a longer text than fits into a single slot of the file")
    for call in (1, 2, 3):
        assert written.put(BEGAN, 0, call)
    written._memory[written.at - 4 : written.at] = bytes(4)  # killed before the last word
    assert [(entry.kind, entry.call, entry.text) for entry in journal.read(tmp_path / "one")] == [
        (NAME, 0, "a longer text than fits into a single slot of the file"),
        (BEGAN, 1, ""),
        (BEGAN, 2, ""),
    ]
    while written.put(ENDED, 0, 9):
        pass
    assert not written.name(1, "x")
    written.close()


def test_a_full_disk_at_the_store_is_the_store_s_to_name(node: Node):
    metering = node.start(1)
    db: Any = metering._store._db
    db.execute("PRAGMA max_page_count = 1")
    metering.began(1, ONE)
    for call in range(2, 400):
        use = Use(AccountId(f"account {call}"), KeyId(""), ModelName("m" * 150))
        metering.began(call, use)
        metering.ended(call, use, Amount(1))
    with pytest.raises(DiskFull):
        metering.sum_up()
    db.execute("PRAGMA max_page_count = 1000000")
    assert sum(requests(metering).values()) == 398
