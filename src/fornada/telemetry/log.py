"""What happens on the node, as events with fields: one JSON object a line, and a feed for who watches.

    log.info("instance.ready", model=..., instance=..., load_s=...)

A name stands once in the code. Ids are on every line; inputs, outputs and keys on none.
"""

import asyncio
import enum
import os
import select
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fornada.core.keys import without_keys
from fornada.core.ports import Clock
from fornada.telemetry.files import RotatingFile
from fornada.telemetry.times import rfc3339

FEED_LENGTH = 256
"""Events that wait for one watcher; a slower one misses the oldest and is told how many."""


class Level(enum.IntEnum):
    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class Log:
    """Writes events to a stream, to a file and to watchers."""

    def __init__(
        self,
        *,
        clock: Clock,
        stream: int | None = None,
        stream_level: Level = Level.INFO,
        file: Path | None = None,
        max_bytes: int = 16 * 1024**2,
    ) -> None:
        """`stream` is a descriptor such as 2; None writes to no stream."""
        self._clock = clock
        self._stream = stream
        self._stream_level = stream_level
        self._file = RotatingFile(file, max_bytes=max_bytes) if file else None
        self._feeds: set[Feed] = set()

    def debug(self, event: str, /, **fields: Any) -> None:
        self._write(Level.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        self._write(Level.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        self._write(Level.WARNING, event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        self._write(Level.ERROR, event, fields)

    def watch(self) -> "Feed":
        """What happens from now on; debug events are left out. Close it when done."""
        feed = Feed(self._feeds)
        self._feeds.add(feed)
        return feed

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _write(self, level: Level, event: str, fields: dict[str, Any]) -> None:
        entry = {"time": rfc3339(self._clock.wall()), "level": level.name.lower(), "event": event, **fields}
        line = without_keys(said := msgspec.json.encode(entry, enc_hook=str) + b"\n")
        if self._file:
            self._file.append(line)
        if self._stream is not None and level >= self._stream_level:
            _to_stream(self._stream, line)
        if level > Level.DEBUG and self._feeds:
            if line is not said:
                entry = msgspec.json.decode(line)
            for feed in self._feeds:
                feed.put(entry)


class Feed:
    """The events of a log as one watcher sees them."""

    def __init__(self, feeds: "set[Feed]") -> None:
        self._feeds = feeds
        self._waiting: deque[Mapping[str, Any]] = deque(maxlen=FEED_LENGTH)
        self._missed = 0
        self._news = asyncio.Event()

    def put(self, entry: Mapping[str, Any]) -> None:
        self._missed += len(self._waiting) == FEED_LENGTH
        self._waiting.append(entry)
        self._news.set()

    def close(self) -> None:
        self._feeds.discard(self)

    async def __aiter__(self) -> AsyncGenerator[Mapping[str, Any], None]:
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                if self._missed:
                    missed, self._missed = self._missed, 0
                    yield {"event": "feed.missed", "count": missed}
                while self._waiting:
                    yield self._waiting.popleft()
        finally:
            self.close()


def _to_stream(descriptor: int, line: bytes) -> None:
    """As much as can be written without waiting: a terminal that was stopped must not stop the node. The file has it all."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    try:
        while line and poll.poll(0):
            line = line[os.write(descriptor, line[: select.PIPE_BUF]) :]
    except OSError:
        pass  # nobody reads it any more
