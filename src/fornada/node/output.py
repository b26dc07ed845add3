"""Reads what one runner prints, without letting it hurry the node.

Lines that begin with MARK are the runner's own JSON and are stored as they come, with the instance's id behind them; whatever
else arrives was written by C code past Python and becomes a line of stderr. A model that prints without end is read at
about CHUNK bytes every PAUSE_S: its pipe fills, and its own prints wait.
"""

import asyncio
import json
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from fornada.core.names import ModelName
from fornada.telemetry import Outputs
from fornada.telemetry.times import rfc3339

MARK = b"\x1e{"
CHUNK = 65536
PAUSE_S = 0.005
LINE_LONGEST = 65536
LAST_WORDS_CHUNKS = 64
"""A pipe holds 1 MiB: what is read after the process has ended."""
KEPT_LINES = 20
REASON_LONGEST = 512


class OutputReader:
    """Owns the reading of `descriptor`, not the descriptor."""

    def __init__(
        self,
        descriptor: int,
        *,
        model: ModelName,
        instance: str,
        outputs: Outputs,
        wall: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._fd = descriptor
        self._model = model
        self._suffix = b',"instance":' + json.dumps(instance).encode() + b"}"
        self._outputs = outputs
        self._wall = wall
        self._loop = loop
        self._rest = b""
        self._last: deque[bytes] = deque(maxlen=KEPT_LINES)
        self._pause: asyncio.TimerHandle | None = None
        self._open = True
        self._since = 0.0
        self._lately = 0
        """Bytes read since then."""
        loop.add_reader(descriptor, self._readable)

    def last_error_line(self) -> str:
        """The last line on stderr among the last lines, for people who wonder why it failed; empty if there is none."""
        for line in reversed(self._last):
            entry = _entry(line)
            text = str(entry.get("line", "")).strip()
            if entry.get("stream") == "stderr" and text:
                # A model that writes its lines itself may write half a character, with which no refusal could be sent.
                return text[:REASON_LONGEST].encode(errors="replace").decode()
        return ""

    def close(self) -> None:
        """Takes in what is left in the pipe, as far as a pipe's length, and reads no more."""
        for _ in range(LAST_WORDS_CHUNKS):
            if not self._open or not self._read():
                break
        if self._rest:
            self._store([self._rest])
            self._rest = b""
        self.stop()

    def stop(self) -> None:
        """Reads no more."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._open:
            self._open = False
            self._loop.remove_reader(self._fd)

    def _readable(self) -> None:
        now = self._loop.time()
        if now - self._since >= PAUSE_S:
            self._since, self._lately = now, 0
        self._lately += self._read()
        if self._lately >= CHUNK and self._open:
            self._loop.remove_reader(self._fd)
            self._pause = self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._fd, self._readable)

    def _read(self) -> int:
        try:
            data = os.read(self._fd, CHUNK)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            data = b""
        if not data:
            self.stop()
            return 0
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_LONGEST:
            lines.append(self._rest)
            self._rest = b""
        if lines:
            self._store(lines)
        return len(data)

    def _store(self, lines: list[bytes]) -> None:
        suffix = self._suffix
        stored = [line[1:-1] + suffix if line[:2] == MARK and line[-1:] == b"}" else self._raw(line) for line in lines if line]
        if stored:
            self._last.extend(stored[-KEPT_LINES:])
            stored.append(b"")
            self._outputs.write(self._model, b"\n".join(stored))

    def _raw(self, line: bytes) -> bytes:
        text = line[:LINE_LONGEST].decode(errors="replace")
        entry = json.dumps({"time": rfc3339(self._wall()), "stream": "stderr", "line": text}, ensure_ascii=False)
        return entry.encode(errors="replace")[:-1] + self._suffix


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}
