"""Reads what one runner prints, without letting it hurry the node.

Lines that begin with MARK are the runner's own JSON and are stored as they come, with the instance's id behind them; whatever
else arrives was written by C code past Python and becomes a line of stderr. A model that prints without end is read at
a pace that is counted in work (bytes, lines, and reads, of which each costs something whatever it brings), and shared with
the others that do so: its pipe fills, and its own prints wait. Of its lines LINES_A_SECOND are kept, and the others counted.
"""

import asyncio
import json
import os
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from fornada.core.names import ModelName
from fornada.telemetry import Outputs
from fornada.telemetry.metrics import Count
from fornada.telemetry.times import rfc3339

MARK = b"\x1e{"
PAUSE_S = 0.005
CHUNK, LINES_A_TURN, READS_A_TURN = 65536, 512, 8
"""What is read, stored, and asked for within PAUSE_S: of all who print without end together."""
CHUNK_LEAST, LINES_LEAST = 4096, 20
"""What each of them has whatever the others do."""
LINES_A_SECOND = 10_000
LINE_LONGEST = 65536
LAST_WORDS_CHUNKS, LAST_WORDS_LINES = 64, 5000
"""A pipe holds 1 MiB: what is read, and stored, after the process has ended."""
DROPS_TOLD_S = 1.0
KEPT_LINES = 20
REASON_LONGEST = 512
_BELOW_A_CRASH = ("Extension modules:", 'File "', "Thread 0x", "Current thread 0x", "<no Python frame>")
"""How the lines begin that faulthandler writes below "Fatal Python error: ...", without their indents."""


class Crowd:
    """How many readers of a node have more to read than they may."""

    def __init__(self) -> None:
        self.size = 0

    def share(self, whole: int, *, least: int) -> int:
        """What one of them may take."""
        return max(least, whole // max(1, self.size))


class OutputReader:
    """Owns the reading of `descriptor`, not the descriptor."""

    def __init__(
        self,
        descriptor: int,
        *,
        model: ModelName,
        instance: str,
        outputs: Outputs,
        lines_dropped: Count,
        crowd: Crowd,
        wall: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`lines_dropped` is the model's metric, and grows with `dropped`."""
        self._fd = descriptor
        self._model = model
        self._instance = instance
        self._suffix = b',"instance":' + json.dumps(instance).encode() + b"}"
        self._outputs = outputs
        self._lines_dropped = lines_dropped
        self._wall = wall
        self._loop = loop
        self._crowd = crowd
        self._rest = b""
        """Lines that weren't stored yet, and the beginning of one."""
        self._last: deque[bytes] = deque(maxlen=KEPT_LINES)
        self._pause: asyncio.TimerHandle | None = None
        self._open = True
        self._turn_at = self._second_at = float("-inf")
        self._bytes = self._reads = self._lines = 0
        """Of this turn."""
        self._kept = 0
        """Lines of this second."""
        self._dropped = 0
        """Lines that nobody was told of yet."""
        self._telling: asyncio.TimerHandle | None = None
        self.dropped = 0
        """Lines, in all."""
        loop.add_reader(descriptor, self._readable)

    def last_error_line(self, *, under_way: Collection[str]) -> str:
        """The last line on stderr among the last lines, for people who wonder why it failed; empty if there is none. Of what Python writes
        at a crash it is the line that names it. `under_way` are the ids of the requests that it was at work on."""
        for line in reversed(self._last):
            entry = _entry(self._stored(line, b'{"stream":"stderr","line":'))
            text = str(entry.get("line", "")).strip()
            if not _belongs_to(str(entry.get("request_id", "")), under_way):
                continue  # it says what became of a request that is over, and nothing to who asks now, who may be a stranger
            if entry.get("stream") == "stderr" and text and not text.startswith(_BELOW_A_CRASH):
                # A model that writes its lines itself may write half a character, with which no refusal could be sent.
                return text[:REASON_LONGEST].encode(errors="replace").decode()
        return ""

    def close(self) -> None:
        """Takes in what is left in the pipe, as far as a pipe's length, and reads no more. Of many last words the last ones are kept."""
        left = [self._rest]
        while len(left) <= LAST_WORDS_CHUNKS and self._open and (data := self._read(CHUNK)):
            left.append(data)
        self._rest = b"".join([*left, b"\n"])
        self._drop(self._rest.count(b"\n") - LAST_WORDS_LINES)
        self._store(LAST_WORDS_LINES)
        self._tell_of_dropped()
        self.stop()

    def stop(self) -> None:
        """Reads no more."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
            self._crowd.size -= 1
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if self._open:
            self._open = False
            self._loop.remove_reader(self._fd)

    def _readable(self) -> None:
        self._turn()
        crowd = self._crowd
        tired = (
            b"\n" in self._rest
            or self._bytes >= crowd.share(CHUNK, least=CHUNK_LEAST)
            or self._lines >= crowd.share(LINES_A_TURN, least=LINES_LEAST)
            or self._reads >= READS_A_TURN
        )
        if tired and self._open:
            self._loop.remove_reader(self._fd)
            self._pause = self._loop.call_later(PAUSE_S, self._resume)
            crowd.size += 1

    def _resume(self) -> None:
        self._pause = None
        self._crowd.size -= 1
        self._loop.add_reader(self._fd, self._readable)
        if b"\n" in self._rest:
            self._readable()

    def _turn(self) -> None:
        """Stores what waits, else reads; both within what is left of this turn's and this second's share."""
        now = self._loop.time()
        if now - self._turn_at >= PAUSE_S:
            self._turn_at = now
            self._bytes = self._reads = self._lines = 0
        if now - self._second_at >= 1.0:
            self._second_at, self._kept = now, 0
        if b"\n" not in self._rest:
            data = self._read(self._crowd.share(CHUNK, least=CHUNK_LEAST))
            self._reads += 1
            self._bytes += len(data)
            self._rest += data
            if len(self._rest) > LINE_LONGEST and b"\n" not in self._rest:
                self._rest += b"\n"
        left = LINES_A_SECOND - self._kept
        if left <= 0:
            self._drop(self._rest.count(b"\n"))
            return
        stored = self._store(min(left, self._crowd.share(LINES_A_TURN, least=LINES_LEAST) - self._lines))
        self._lines += stored
        self._kept += stored

    def _read(self, most: int) -> bytes:
        """What is there; nothing where there is nothing, or never will be again."""
        try:
            data = os.read(self._fd, most)
        except (BlockingIOError, InterruptedError):
            return b""
        except OSError:
            data = b""
        if not data:
            self.stop()
        return data

    def _store(self, most: int) -> int:
        """The next lines, as many as there are and may be. How many it were."""
        if most <= 0 or b"\n" not in self._rest:
            return 0
        *lines, rest = self._rest.split(b"\n", most)
        self._rest = rest
        began = b'{"time":"' + rfc3339(self._wall()).encode() + b'","stream":"stderr","line":'
        stored = [self._stored(line, began) for line in lines if line]
        if stored:
            self._last.extend(line for line in lines[-KEPT_LINES:] if line)
            stored.append(b"")
            self._outputs.write(self._model, b"\n".join(stored))
        return len(lines)

    def _stored(self, line: bytes, began: bytes) -> bytes:
        """A line as it is stored; `began` is what stands before the text of one that C code wrote."""
        if line[:2] == MARK and line[-1:] == b"}":
            return line[1:-1] + self._suffix
        return began + msgspec.json.encode(line[:LINE_LONGEST].decode(errors="replace")) + self._suffix

    def _drop(self, count: int) -> None:
        """The next `count` lines aren't stored. The last of them may still say why the process ended."""
        if count <= 0:
            return
        self._rest = self._rest.split(b"\n", count)[-1] if count < self._rest.count(b"\n") else self._last_of_rest()
        self.dropped += count
        self._lines_dropped.value += count
        self._dropped += count
        if self._telling is None:
            self._telling = self._loop.call_later(DROPS_TOLD_S, self._tell_of_dropped)

    def _last_of_rest(self) -> bytes:
        """Remembers the last lines; what is no whole line yet."""
        lines, _, rest = self._rest.rpartition(b"\n")
        self._last.extend(filter(None, lines.rsplit(b"\n", KEPT_LINES)[-KEPT_LINES:]))
        return rest

    def _tell_of_dropped(self) -> None:
        self._telling = None
        if self._dropped:
            count, self._dropped = self._dropped, 0
            self._outputs.note(self._model, f"{count} lines dropped: more came than are kept", instance=self._instance)


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _belongs_to(request_id: str, under_way: Collection[str]) -> bool:
    """Of a batch it is several ids, with commas between them. What is tied to no request may be about any."""
    return not request_id or request_id in under_way or any(one in under_way for one in request_id.split(","))
