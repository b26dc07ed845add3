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
"""Lines that wait for one reader who follows; a slower one misses the oldest and is told how many."""
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
            for line in _parsed(await asyncio.to_thread(_tail, path, older, end, last)):
                yield line
            while follow:
                missed, lines = await feed.take()
                if missed:
                    yield LogLine(time=rfc3339(self._wall()), stream="node", line=f"{missed} lines were not shown: they came too fast")
                for line in _parsed(lines):
                    yield line
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

    def _file(self, model: ModelName) -> RotatingFile:
        file = self._files.get(model)
        if file is None:
            file = self._files[model] = RotatingFile(self.path(model), max_bytes=self._max_bytes)
        return file


class _Feed:
    """Lines on their way to one reader who follows."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=FEED_LENGTH)
        self._missed = 0
        self._news = asyncio.Event()

    def put(self, lines: bytes) -> None:
        for line in lines.split(b"\n")[:-1]:
            self._missed += len(self._lines) == FEED_LENGTH
            self._lines.append(line)
        self._news.set()

    async def take(self) -> tuple[int, list[bytes]]:
        await self._news.wait()
        self._news.clear()
        lines, missed = list(self._lines), self._missed
        self._lines.clear()
        self._missed = 0
        return missed, lines


def _parsed(lines: list[bytes]) -> list[LogLine]:
    parsed = []
    for line in lines:
        try:
            parsed.append(_DECODER.decode(line))
        except msgspec.MsgspecError:
            text = line.decode(errors="replace")
            parsed.append(LogLine(time="", stream="stderr", line=text))
    return parsed


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
