"""core.ports_tensors.SignaturesPort: what runners said of their models' tensors when they were ready."""

from typing import Any

import msgspec

from fornada.core.names import VersionDigest
from fornada.core.specs import TensorsSpec
from fornada.core.tensors import MOST_DIMENSIONS, MOST_TENSORS

KEPT = 4096
NAME_LONGEST = 512


class Signatures:
    """Kept for as long as the process lives: the next one hears it again with the next load."""

    def __init__(self) -> None:
        self._kept: dict[VersionDigest, TensorsSpec] = {}

    def of(self, digest: VersionDigest) -> TensorsSpec | None:
        return self._kept.get(digest)

    def note(self, digest: VersionDigest, said: Any) -> None:
        """READY's `tensors`. A runner is hostile: what can't be read is left out, and nothing of it can be large."""
        try:
            found = msgspec.convert(said, TensorsSpec)
        except msgspec.ValidationError:
            return
        for side in (found.inputs, found.outputs):
            if len(side) > MOST_TENSORS or any(len(each.name) > NAME_LONGEST or len(each.shape) > MOST_DIMENSIONS for each in side):
                return
        if len(self._kept) >= KEPT:
            self._kept.clear()
        self._kept[digest] = found
