"""sha256 of large files, in steps: between two steps others run, a cancellation is seen and progress is told."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from fornada.node.provision.threads import uninterrupted

CHUNK = 4 * 1024 * 1024


async def digest_of(path: Path, told: Callable[[int], None] | None = None) -> str:
    """sha256 in hex. `told` gets the bytes read so far. Raises OSError."""
    return await _in_steps(path, None, told)


async def copy_hashed(source: Path, target: Path, told: Callable[[int], None] | None = None) -> str:
    """Copies into `target`, replacing it; sha256 in hex of what was written. Raises OSError."""
    return await _in_steps(source, target, told)


async def _in_steps(source: Path, target: Path | None, told: Callable[[int], None] | None) -> str:
    reading = await uninterrupted(_Reading, source, target)
    with reading:
        while await uninterrupted(reading.step):
            if told:
                told(reading.count)
    return reading.digest.hexdigest()


class _Reading:
    def __init__(self, source: Path, target: Path | None) -> None:
        self.digest = hashlib.sha256()
        self.count = 0
        self._source = open(source, "rb", buffering=0)  # noqa: SIM115 - closed by __exit__
        self._target = open(target, "wb", buffering=0) if target else None  # noqa: SIM115

    def step(self) -> bool:
        chunk = self._source.read(CHUNK)
        self.digest.update(chunk)
        self.count += len(chunk)
        if self._target:
            rest = memoryview(chunk)
            while rest:
                rest = rest[self._target.write(rest) or 0 :]
        return bool(chunk)

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._source.close()
        if self._target:
            self._target.close()
