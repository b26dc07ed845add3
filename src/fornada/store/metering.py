"""core.usage.UsagePort: counts into a journal, and from there into the store.

    a request ends ──► a slot in the journal, before the runner's answer is acknowledged     outlives this process
    each second    ──► all slots since, as sums, with the position, in one transaction        outlives the machine
    a start        ──► what predecessors had written and not summed up; whose requests may still come in

Each control plane writes journals of its own, `LIFE-EPOCH-NUMBER`. Ids of requests mean something within one life of the keeper: when that is
gone its runners are, and nothing of before can come any more.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from fornada.core.errors import FornadaError
from fornada.core.keys import KeyId
from fornada.core.names import AccountId, ModelName
from fornada.core.ports import EventLog
from fornada.core.usage import DAY_S, Amount, UsageRow, Use
from fornada.store.journal import BEGAN, DROPPED, ENDED, NAME, SEGMENT, Entry, Journal, read
from fornada.store.unusable import StoreUnusable
from fornada.store.usage import UsageRows

SUM_UP_S = 1.0
LIFE = "life"
"""File with the name of the keeper's life."""
Sums = dict[tuple[Use, int], Amount]


class Metering:
    """See the module's docstring. Everything happens on the caller's thread."""

    def __init__(
        self, store: UsageRows, folder: Path, *, epoch: int, wall: Callable[[], float], log: EventLog, segment: int = SEGMENT
    ) -> None:
        """`epoch`: which control plane of the keeper's life this is, from 1. Raises what the store raises, and StoreUnusable."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._life = _life(folder, first=epoch == 1)
        except OSError as error:
            raise StoreUnusable(f"{error.filename or folder} can't be written: {error.strerror}") from None
        self._store = store
        self._folder = folder
        self._prefix = f"{self._life}-{epoch:06d}-"
        self._wall = wall
        self._log = log
        self._segment = segment
        self._count = 0
        self._uses: list[Use] = []
        self._numbers: dict[Use, int] = {}
        self._open: dict[int, Use] = {}
        """Requests that are with runners."""
        self._orphans: dict[int, Use] = {}
        """Those of control planes before this one that nobody has counted."""
        self._settled: set[int] = set()
        """Those that were, as long as their control plane may live."""
        self._alone = False
        """No other control plane lives."""
        self._read_to = self._summed_to = 0
        self._sums: Sums = {}
        """Read from the journal, and not in the store yet."""
        self._loose: Sums = {}
        """Counted while no journal could be had."""
        self._behind: list[Path] = []
        """Full journals of ours that the store didn't take."""
        self._spent: dict[tuple[AccountId, KeyId], float] = {}
        self._of_account: dict[AccountId, float] = {}
        self._day = -1
        self._journal: Journal | None = None
        self._begin_day(int(wall() // DAY_S))
        self._next_journal()

    # ---- core.usage.UsagePort

    def began(self, call: int, use: Use) -> None:
        self._open[call] = use
        self._put(BEGAN, use, call)

    def ended(self, call: int, use: Use, amount: Amount) -> None:
        if self._open.pop(call, None) is None:
            self._settle(call)
        day = int(self._wall() // DAY_S)
        _, taken, given, seconds, neurons = amount
        if not self._put(ENDED, use, call, seconds, neurons, taken, given, day):
            _add(self._loose, use, day, amount)
            self._spend(use, day, amount)

    def dropped(self, call: int) -> None:
        use = self._open.pop(call, None)
        if use is None:
            use = self._orphans.get(call)
            self._settle(call)
        if use is not None:
            self._put(DROPPED, use, call)

    def orphan(self, call: int) -> Use | None:
        if call not in self._orphans and not self._alone:
            self._orphans = {id: use for id, use in self._left().items() if id not in self._settled}
        return self._orphans.get(call)

    def spent(self, account: AccountId, key: KeyId | None) -> float:
        self._catch_up()
        day = int(self._wall() // DAY_S)
        if day != self._day:
            self._begin_day(day)
        return self._of_account.get(account, 0.0) if key is None else self._spent.get((account, key), 0.0)

    def rows(self, account: AccountId | None) -> Sequence[UsageRow]:
        self.sum_up()
        return self._store.usage_rows(account)

    # ---- from the journal into the store

    async def run(self) -> None:
        """Sums up, each second."""
        failing = False
        while True:
            await asyncio.sleep(SUM_UP_S)
            try:
                self.sum_up()
                failing = False
            except FornadaError as error:
                if not failing:
                    self._log.warning("usage.not_summed", reason=error.message)
                failing = True

    def sum_up(self) -> None:
        """Raises what the store raises: then it is all tried again."""
        self._catch_up()
        if self._loose:
            self._store.add_usage(self._loose, f"{self._prefix}none", 0)
            self._loose = {}
        while self._behind:
            self._add_of(self._behind[0])
            self._behind.pop(0).unlink(missing_ok=True)
        journal = self._journal
        if journal is None:
            self._next_journal()
        elif self._summed_to != self._read_to:
            if self._sums:
                self._store.add_usage(self._sums, journal.path.name, self._read_to)
            self._sums = {}
            self._summed_to = self._read_to

    def take_over(self) -> None:
        """No other control plane lives: what those before this one had counted goes into the store, and what they had sent becomes ours to
        count. Raises what the store raises."""
        self._orphans = {call: use for call, use in self._left().items() if call not in self._settled}
        self._alone = True
        self._settled.clear()
        others = self._others()
        for path in others:
            self._add_of(path)
        for call, use in self._orphans.items():  # for whoever comes after this one
            self._put(BEGAN, use, call)
        for path in others:
            path.unlink(missing_ok=True)
        # Only what is gone for good is forgotten: a file that came back after a power loss would be counted again.
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._store.forget_journals(but=[path.name for path in self._folder.iterdir()])
        self._begin_day(int(self._wall() // DAY_S))
        if others:
            self._log.info("usage.taken_over", journals=len(others), under_way=len(self._orphans))

    def close(self) -> None:
        """Nothing of ours is under way any more."""
        try:
            self.sum_up()
        except FornadaError as error:
            self._log.warning("usage.not_summed", reason=error.message)

    # ---- helpers

    def _others(self) -> list[Path]:
        """Journals of others, in the order of their time within a life."""
        return sorted(path for path in self._folder.iterdir() if path.name != LIFE and not path.name.startswith(self._prefix))

    def _left(self) -> dict[int, Use]:
        """What control planes before this one had sent and not counted."""
        open: dict[int, Use] = {}
        for path in self._others():
            if not path.name.startswith(f"{self._life}-"):
                continue
            uses: list[Use] = []
            with contextlib.suppress(FileNotFoundError):
                for entry in read(path):
                    if entry.kind == NAME:
                        uses.append(_use(entry.text))
                    elif entry.kind == BEGAN and entry.number < len(uses):
                        open[entry.call] = uses[entry.number]
                    else:
                        open.pop(entry.call, None)
        return open

    def _add_of(self, path: Path) -> None:
        """What of a journal that nobody writes isn't in the store yet."""
        position = self._store.journal_position(path.name)
        uses: list[Use] = []
        sums: Sums = {}
        at = 0
        for entry in read(path):
            if entry.kind == NAME:
                uses.append(_use(entry.text))
            elif entry.kind == ENDED and at >= position and entry.number < len(uses):
                _add(sums, uses[entry.number], entry.day, _amount(entry))
            at = entry.end
        if sums:
            self._store.add_usage(sums, path.name, at)

    def _catch_up(self) -> None:
        journal = self._journal
        if journal is None or journal.at == self._read_to:
            return
        for (number, day), (requests, taken, given, seconds, neurons) in journal.ended(self._read_to).items():
            use = self._uses[number]
            amount = Amount(int(requests), int(taken), int(given), seconds, neurons)
            _add(self._sums, use, day, amount)
            self._spend(use, day, amount)
        self._read_to = journal.at

    def _spend(self, use: Use, day: int, amount: Amount) -> None:
        if day == self._day and amount.neurons:
            who = (use.account, use.key)
            self._spent[who] = self._spent.get(who, 0.0) + amount.neurons
            self._of_account[use.account] = self._of_account.get(use.account, 0.0) + amount.neurons

    def _begin_day(self, day: int) -> None:
        self._day = day
        self._spent = {}
        self._of_account = {}
        for (account, key), neurons in self._store.neurons_of(day).items():
            self._spend(Use(account, key, ModelName("")), day, Amount(neurons=neurons))
        for sums in (self._sums, self._loose):
            for (use, of), amount in sums.items():
                self._spend(use, of, amount)

    def _settle(self, call: int) -> None:
        """A request of a control plane before this one is counted, or never will be."""
        self._orphans.pop(call, None)
        if not self._alone:
            self._settled.add(call)

    def _put(
        self,
        kind: int,
        use: Use,
        call: int,
        seconds: float = 0.0,
        neurons: float = 0.0,
        taken: int = 0,
        given: int = 0,
        day: int = 0,
    ) -> bool:
        """Whether it is in a journal."""
        for _ in range(2):
            journal = self._journal
            if journal is None:
                return False
            number = self._numbers.get(use)
            if number is None:
                number = self._name(journal, use)
            if number is not None and journal.put(kind, number, call, seconds, neurons, taken, given, day):
                return True
            self._next_journal()
        return False

    def _name(self, journal: Journal, use: Use) -> int | None:
        number = len(self._uses)
        if not journal.name(number, _text(use)):
            return None
        self._uses.append(use)
        self._numbers[use] = number
        return number

    def _next_journal(self) -> None:
        """The old one is full: what it has goes into the store, what is under way into the new one."""
        before, self._journal = self._journal, None
        if before is not None:
            self._retire(before)
        self._count += 1
        self._read_to = self._summed_to = 0
        # Numbered anew: in open mode clients make up accounts, and whoever is gone is to be forgotten.
        self._uses, self._numbers = [], {}
        try:
            self._journal = Journal(self._folder / f"{self._prefix}{self._count:06d}", size=self._segment)
        except OSError as error:
            self._log.warning("usage.no_journal", reason=str(error.strerror))
            return
        for call, use in {**(self._orphans if self._alone else {}), **self._open}.items():
            number = self._numbers.get(use)
            if number is None:
                number = self._name(self._journal, use)
            if number is None or not self._journal.put(BEGAN, number, call):
                self._log.warning("usage.journal_too_small", under_way=len(self._open))
                break
        if before is not None and before.path not in self._behind:
            before.path.unlink(missing_ok=True)

    def _retire(self, journal: Journal) -> None:
        self._journal = journal
        self._catch_up()
        self._journal = None
        try:
            if self._sums:
                self._store.add_usage(self._sums, journal.path.name, self._read_to)
        except FornadaError as error:
            self._log.warning("usage.not_summed", reason=error.message)
            self._behind.append(journal.path)
        self._sums = {}
        journal.close()


def _life(folder: Path, *, first: bool) -> str:
    path = folder / LIFE
    if first or not path.exists():
        path.write_text(os.urandom(8).hex())
    return path.read_text()


def _text(use: Use) -> str:
    return msgspec.json.encode(use).decode()


def _use(text: str) -> Use:
    account, key, model = msgspec.json.decode(text, type=tuple[str, str, str])
    return Use(AccountId(account), KeyId(key), ModelName(model))


def _add(sums: Sums, use: Use, day: int, amount: Amount) -> None:
    sums[use, day] = sums.get((use, day), Amount()).plus(amount)


def _amount(entry: Entry) -> Amount:
    return Amount(1, entry.taken, entry.given, entry.seconds, entry.neurons)
