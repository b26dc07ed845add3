"""Files of lines that never grow beyond a bound: the newer half in PATH, the older half in PATH.1."""

import os
from pathlib import Path


class RotatingFile:
    """Appends whole lines. Both halves together stay below `max_bytes` plus one write."""

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        self.path = path
        self._half = max(1, max_bytes // 2)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - it lives as long as this object
        self._size = self._file.tell()

    @property
    def older(self) -> Path:
        """Where the older half lies, if there is one."""
        return self.path.with_name(self.path.name + ".1")

    @property
    def size(self) -> int:
        """Bytes in the newer half."""
        return self._size

    def append(self, lines: bytes) -> None:
        """`lines` ends with a newline. A full disk loses lines, never the node: the error is swallowed here and nowhere else."""
        if self._size and self._size + len(lines) > self._half:
            self._rotate()
        try:
            self._size += self._file.write(lines) or 0
        except OSError:
            pass

    def close(self) -> None:
        self._file.close()

    def _rotate(self) -> None:
        try:
            os.replace(self.path, self.older)
            newer = open(self.path, "ab", buffering=0)  # noqa: SIM115
        except OSError:
            return  # the old file goes on growing by what little the disk still takes
        self._file.close()
        self._file = newer
        self._size = 0
