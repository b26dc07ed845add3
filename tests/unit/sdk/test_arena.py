"""What is taken of a shared file, and how bytes get into it and out of it."""

import os
import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fornada_sdk.wire.arena import GRAIN, MemoryFile, Slots

GRAINS = 16


class Account(RuleBasedStateMachine):
    """Against a list of who has each grain."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = Slots(GRAINS * GRAIN + 1000)
        self.owners: list[int] = [-1] * GRAINS

    @rule(size=st.integers(1, (GRAINS + 1) * GRAIN))
    def take(self, size: int) -> None:
        need = -(-size // GRAIN)
        fitting = [at for at in range(GRAINS - need + 1) if all(owner < 0 for owner in self.owners[at : at + need])]
        at = self.slots.take(size)
        if not fitting:
            assert at == -1
            return
        assert at == fitting[0] * GRAIN, "the lowest"
        self.owners[fitting[0] : fitting[0] + need] = [at] * need

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        taken = sorted(set(self.owners) - {-1})
        if taken:
            at = data.draw(st.sampled_from(taken))
            self.slots.free(at)
            self.owners = [-1 if owner == at else owner for owner in self.owners]

    @rule(at=st.integers(0, GRAINS * GRAIN))
    def free_what_was_never_given(self, at: int) -> None:
        if at not in self.owners:
            with pytest.raises(KeyError):
                self.slots.free(at)

    @invariant()
    def what_is_free_is_told_in_as_few_pieces_as_possible(self) -> None:
        holes = list(self.slots.holes())
        told = [grain for at, size in holes for grain in range(at // GRAIN, (at + size) // GRAIN)]
        assert told == [grain for grain, owner in enumerate(self.owners) if owner < 0]
        assert all(at + size < following for (at, size), (following, _) in pairwise(holes))
        assert len(self.slots) == len(set(self.owners) - {-1})


TestAccount = Account.TestCase


@pytest.mark.parametrize("size", [0, 1, GRAIN - 1])
def test_a_file_of_less_than_a_grain_holds_nothing(size: int):
    assert Slots(size).take(1) == -1


@pytest.fixture
def file() -> Iterator[MemoryFile]:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 8 * GRAIN)
    made = MemoryFile(descriptor, 8 * GRAIN)
    yield made
    made.close()


@given(sizes=st.lists(st.integers(0, 5000), max_size=60), at=st.integers(0, GRAIN))
def test_what_is_written_in_pieces_is_read_as_one(sizes: list[int], at: int):
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 8 * GRAIN)
    file = MemoryFile(descriptor, 8 * GRAIN)
    pieces = [random.Random(size).randbytes(size) for size in sizes]
    file.write(at, pieces)
    whole = b"".join(pieces)
    if whole:
        assert file.read(at, len(whole)) == whole
    assert os.pread(descriptor, at, 0) == bytes(at)
    file.close()


def test_more_pieces_than_a_call_may_bring(file: MemoryFile):
    pieces = [b"%05d" % number for number in range(5000)]
    file.write(GRAIN, pieces)
    assert file.read(GRAIN, 25_000) == b"".join(pieces)


@pytest.mark.parametrize(("at", "size"), [(0, 0), (0, 8 * GRAIN + 1), (8 * GRAIN, 1), (2**63, 1), (1, 2**64 - 1), (2**64 - 1, 2**64 - 1)])
def test_nothing_is_read_that_does_not_lie_in_the_file(file: MemoryFile, at: int, size: int):
    with pytest.raises(ValueError, match="of a file of"):
        file.read(at, size)


def test_a_file_that_is_shorter_than_it_should_be_is_no_shorter_answer(file: MemoryFile):
    os.ftruncate(file.descriptor, GRAIN)
    with pytest.raises(ValueError, match="the file ends"):
        file.read(0, 2 * GRAIN)


def test_memory_is_given_back_and_its_neighbours_are_kept(file: MemoryFile):
    file.write(0, [b"x" * 3 * GRAIN])
    before = os.fstat(file.descriptor).st_blocks
    file.give_back(GRAIN, GRAIN)
    assert os.fstat(file.descriptor).st_blocks == before * 2 // 3
    assert file.read(0, 3 * GRAIN) == b"x" * GRAIN + bytes(GRAIN) + b"x" * GRAIN
