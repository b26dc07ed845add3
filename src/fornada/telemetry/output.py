"""What models print: one file of JSON lines for each model, kept within a bound, read back and followed.

The lines come from hostile code. They are stored unread: the runner's JSON with the instance's id put behind it, so that a
forged id loses against ours; whoever reads them skips what is no LogLine.
"""

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from urllib.parse import quote

import msgspec

from fornada.core.names import ModelName
from fornada.core.ports import LogLine
from fornada.telemetry.files import RotatingFile
from fornada.telemetry.times import rfc3339

FEED_LENGTH = 2048
FEED_BYTES = 1024 * 1024
"""Lines, and bytes of them, that wait for one reader who follows; a slower one misses the oldest and is told how many."""
BLOCK = 65536
_DECODER = msgspec.json.Decoder(LogLine)


class Outputs:
    """The output of all models under one folder."""

    def __init__(self, folder: Path, *, wall: Callable[[], float], max_bytes: int) -> None:
        self._folder = folder
        self._wall = wall
        self._max_bytes = max_bytes
        self._files: dict[ModelName, RotatingFile] = {}
        self._feeds: dict[ModelName, set[_Feed]] = {}

    def write(self, model: ModelName, lines: bytes) -> None:
        """Whole JSON lines, each ended by a newline."""
        self._file(model).append(lines)
        for feed in self._feeds.get(model, ()):
            feed.put(lines)

    def note(self, model: ModelName, line: str, *, instance: str = "") -> None:
        """A line of ours among the model's own."""
        entry = LogLine(time=rfc3339(self._wall()), stream="node", line=line, instance=instance)
        self.write(model, msgspec.json.encode(entry) + b"\n")

    def path(self, model: ModelName) -> Path:
        """The newer half of the model's file."""
        return self._folder / f"{_file_name(model)}.jsonl"

    async def read(self, model: ModelName, *, last: int, follow: bool) -> AsyncGenerator[LogLine, None]:
        """The last `last` lines, then, with `follow`, what comes until the reader stops."""
        feed = _Feed()
        path, older = self.path(model), self.path(model).with_name(self.path(model).name + ".1")
        end = self._files[model].size if model in self._files else None
        if follow:
            self._feeds.setdefault(model, set()).add(feed)
        try:
            for line in await asyncio.to_thread(_tail, path, older, end, last):
                yield _parsed(line)
            while follow:
                missed, line = await feed.take()
                if missed:
                    yield self._told_of(missed)
                yield _parsed(line)
        finally:
            self._feeds.get(model, set()).discard(feed)

    def forget(self, model: ModelName) -> None:
        """The model is gone from the catalogue: closes its file and removes what it printed."""
        file = self._files.pop(model, None)
        if file:
            file.close()
        path = self.path(model)
        for gone in (path, path.with_name(path.name + ".1")):
            gone.unlink(missing_ok=True)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _told_of(self, missed: int) -> LogLine:
        were = "line was" if missed == 1 else "lines were"
        return LogLine(time=rfc3339(self._wall()), stream="node", line=f"{missed} {were} not shown: more came than were read")

    def _file(self, model: ModelName) -> RotatingFile:
        file = self._files.get(model)
        if file is None:
            file = self._files[model] = RotatingFile(self.path(model), max_bytes=self._max_bytes)
        return file


class _Feed:
    """Lines on their way to one reader who follows."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._missed = 0
        self._news = asyncio.Event()

    def put(self, lines: bytes) -> None:
        waiting = self._lines
        for line in lines.split(b"\n")[:-1]:
            waiting.append(line)
            self._bytes += len(line)
            # The newest line is never the one that goes: whoever is told of a gap must get what comes after it.
            while len(waiting) > 1 and (self._bytes > FEED_BYTES or len(waiting) > FEED_LENGTH):
                self._bytes -= len(waiting.popleft())
                self._missed += 1
        self._news.set()

    async def take(self) -> tuple[int, bytes]:
        """How many were missed before it, and the next line."""
        while not self._lines:
            self._news.clear()
            await self._news.wait()
        line = self._lines.popleft()
        self._bytes -= len(line)
        missed, self._missed = self._missed, 0
        return missed, line


def _parsed(line: bytes) -> LogLine:
    try:
        return _DECODER.decode(line)
    except msgspec.MsgspecError:
        return LogLine(time="", stream="stderr", line=line.decode(errors="replace"))


def _tail(path: Path, older: Path, end: int | None, count: int) -> list[bytes]:
    """The last `count` lines of `older` followed by `path`'s first `end` bytes."""
    newer = _last_lines(path, end, count)
    if len(newer) < count:
        newer = _last_lines(older, None, count - len(newer)) + newer
    return newer


def _last_lines(path: Path, end: int | None, count: int) -> list[bytes]:
    if count <= 0:
        return []
    try:
        with open(path, "rb") as file:
            at = file.seek(0, os.SEEK_END) if end is None else end
            data = b""
            while at > 0 and data.count(b"\n") <= count:
                step = min(BLOCK, at)
                at -= step
                file.seek(at)
                data = file.read(step) + data
    except FileNotFoundError:
        return []
    return data.split(b"\n")[:-1][-count:]


def _file_name(model: ModelName) -> str:
    """A name that is one path segment and differs for different models."""
    quoted = quote(model, safe="@ ")
    if len(quoted) <= 160 and quoted.strip(".") == quoted:
        return quoted
    return f"{quoted[:120].strip('.')}~{hashlib.sha256(model.encode()).hexdigest()[:16]}"
