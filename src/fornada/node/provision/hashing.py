"""sha256 of large files, in steps: between two steps others run, a cancellation is seen and progress is told."""

import contextlib
import hashlib
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from fornada.node.provision.threads import uninterrupted

CHUNK = 4 * 1024 * 1024


async def digest_of(path: Path, told: Callable[[int], None] | None = None) -> str:
    """sha256 in hex. `told` gets the bytes read so far. Raises OSError."""
    return await _in_steps(path, None, told)


async def copy_hashed(source: Path, target: Path, told: Callable[[int], None] | None = None) -> str:
    """Copies into `target`, replacing it; sha256 in hex of what was written. Raises OSError."""
    return await _in_steps(source, target, told)


async def _in_steps(source: Path, target: Path | None, told: Callable[[int], None] | None) -> str:
    reading = _Reading(source, target)
    try:
        await uninterrupted(reading.open)
        while await uninterrupted(reading.step):
            if told:
                told(reading.count)
    finally:
        reading.close()
    return reading.digest.hexdigest()


class _Reading:
    def __init__(self, source: Path, target: Path | None) -> None:
        self.digest = hashlib.sha256()
        self.count = 0
        self._files = contextlib.ExitStack()
        self._source_path = source
        self._target_path = target
        self._target: FileIO | None = None

    def open(self) -> None:
        self._source = self._files.enter_context(open(self._source_path, "rb", buffering=0))  # noqa: SIM115 - the stack closes it
        if self._target_path:
            self._target = self._files.enter_context(open(self._target_path, "wb", buffering=0))  # noqa: SIM115

    def step(self) -> bool:
        chunk = self._source.read(CHUNK)
        self.digest.update(chunk)
        self.count += len(chunk)
        if self._target:
            rest = memoryview(chunk)
            while rest:
                rest = rest[self._target.write(rest) or 0 :]
        return bool(chunk)

    def close(self) -> None:
        self._files.close()
