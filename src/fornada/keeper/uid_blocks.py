"""The uids of zygotes: each has a block of its own, of which every instance that it forks gets one."""

import dataclasses

BLOCK = 512
"""Uids of one zygote, and so one less than the instances that it has at a time where they have uids of their own."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ids:
    """What uid and gid 0, 1, 2 ... of a zygote's user namespace are in ours."""

    first_uid: int
    first_gid: int
    count: int


class Block:
    """The uids of one zygote: number 0 is its own, each of the others one instance's. With one alone, all share it."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self._free = set(range(1, ids.count))

    @property
    def shared(self) -> bool:
        return self.ids.count == 1

    def take(self) -> int:
        """The lowest that is free, as it is called inside. Raises OSError."""
        if not self._free:
            raise OSError(0, f"all {self.ids.count - 1} uids of its zygote are in use")
        inside = min(self._free)
        self._free.remove(inside)
        return inside

    def give_back(self, inside: int) -> None:
        self._free.add(inside)


class Blocks:
    """All of a node's: `count` of them from `first` on."""

    def __init__(self, first: int, count: int) -> None:
        self._free = set(range(first, first + count * BLOCK, BLOCK))

    def take(self) -> Block:
        """Raises OSError."""
        if not self._free:
            raise OSError(0, "all blocks of uids that zygotes may have are in use")
        first = min(self._free)
        self._free.remove(first)
        return Block(Ids(first, first, BLOCK))

    def give_back(self, block: Block) -> None:
        self._free.add(block.ids.first_uid)
