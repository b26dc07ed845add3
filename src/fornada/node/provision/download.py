"""Fetches a file over HTTP, going on where it stopped: a kill or a broken line costs what is on the wire, not what is on disk."""

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import httpx

from fornada.node.provision.outbound import AddressRefused, CheckedTransport
from fornada.node.provision.threads import uninterrupted

ATTEMPTS = 4
"""In a row without a single new byte."""
PAUSES_S = (0.2, 1.0, 3.0)
CHUNK = 1024 * 1024
ROOM_EVERY = 64 * 1024 * 1024
"""How often to ask for room where the server doesn't say how much is coming."""
LARGEST = 256 * 1024**3
MOST_REDIRECTS = 10
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)\Z")

Room = Callable[[int], Awaitable[None]]
Told = Callable[[int, int | None], None]


class SourceFailed(Exception):
    """This source can't serve the file; the next one may. The message is half a line."""


async def download(url: str, part: Path, *, transport: CheckedTransport, room: Room, told: Told) -> None:
    """The file's content in `part`, which may hold the beginning of an earlier try. `transport` is closed. `room` is asked before
    more is written, `told` gets bytes there and bytes in all. Raises SourceFailed, and what `room` raises."""
    fetch = _Fetch(url, part, room=room, told=told)
    # Each redirect is a request of its own to the transport, which checks where it leads.
    async with httpx.AsyncClient(transport=transport, timeout=TIMEOUT, follow_redirects=True, max_redirects=MOST_REDIRECTS) as client:
        failures = 0
        while True:
            before = fetch.size()
            try:
                return await fetch.attempt(client)
            except (httpx.TransportError, _Broken) as error:
                failures = 1 if fetch.size() > before else failures + 1
                if failures >= ATTEMPTS:
                    raise SourceFailed(f"{_kind(error)}") from None
                await asyncio.sleep(PAUSES_S[failures - 1])
            except (httpx.HTTPError, httpx.InvalidURL, AddressRefused) as error:
                raise SourceFailed(_kind(error)) from None
            except (ExceptionGroup, OverflowError):  # a port that is none, in the address or in a redirection's
                raise SourceFailed("its address is none that can be connected to") from None


class _Broken(Exception):
    """The answer ended early, or the server is in trouble: worth another try."""


class _Fetch:
    def __init__(self, url: str, part: Path, *, room: Room, told: Told) -> None:
        self._url = url
        self._part = part
        self._note = part.with_name(f"{part.name}.json")
        self._room = room
        self._told = told

    def size(self) -> int:
        with contextlib.suppress(OSError):
            return self._part.stat().st_size
        return 0

    async def attempt(self, client: httpx.AsyncClient) -> None:
        start, validator = self._resumed()
        headers = {"accept-encoding": "identity"}
        if start:
            headers["range"] = f"bytes={start}-"
            headers["if-range"] = validator
        async with client.stream("GET", self._url, headers=headers) as response:
            if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                self._start_over()
                raise _Broken("the server refused to go on where the last try stopped")
            if response.is_server_error or response.status_code == httpx.codes.TOO_MANY_REQUESTS:
                raise _Broken(f"answers {response.status_code}")
            if not response.is_success:
                raise SourceFailed(f"answers {response.status_code}")
            total = self._total(response, start)
            if total is None and response.status_code == httpx.codes.PARTIAL_CONTENT:
                self._start_over()
                raise _Broken("the server went on at another place than asked")
            if response.status_code != httpx.codes.PARTIAL_CONTENT:
                start = 0
                self._remember(response)
            await self._receive(response, start, total)

    async def _receive(self, response: httpx.Response, start: int, total: int | None) -> None:
        if total and total > LARGEST:
            raise SourceFailed(f"is larger than {LARGEST} bytes")
        await self._room(max(0, (total or 0) - start))
        count = start
        writing = _Writing(self._part, start)
        try:
            await uninterrupted(writing.open)
            async for chunk in response.aiter_bytes(CHUNK):
                count += len(chunk)
                if count > (LARGEST if total is None else total):
                    raise SourceFailed("sends more than it announced")
                if total is None and count // ROOM_EVERY != (count - len(chunk)) // ROOM_EVERY:
                    await self._room(ROOM_EVERY)
                await uninterrupted(writing.write, chunk)
                self._told(count, total)
        finally:
            writing.close()
        if total is not None and count < total:
            raise _Broken(f"ended after {count} of {total} bytes")

    def _total(self, response: httpx.Response, start: int) -> int | None:
        """Bytes of the whole file; None where it isn't said, or where the part isn't the one asked for."""
        if response.status_code == httpx.codes.PARTIAL_CONTENT:
            match = _CONTENT_RANGE.match(response.headers.get("content-range", ""))
            return int(match[2]) if match and int(match[1]) == start and match[2] != "*" else None
        if _encoded(response):
            return None
        length = response.headers.get("content-length", "")
        return int(length) if length.isdigit() else None

    def _resumed(self) -> tuple[int, str]:
        """(bytes already there, validator) of a try at the same address that the server can go on with."""
        size = self.size()
        if size:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                note = json.loads(self._note.read_bytes())
                if note["url"] == self._url and note["validator"]:
                    return size, str(note["validator"])
        return 0, ""

    def _remember(self, response: httpx.Response) -> None:
        etag = response.headers.get("etag", "")
        # A weak validator may not go into If-Range (RFC 9110, 13.1.5).
        validator = etag if etag.startswith('"') else response.headers.get("last-modified", "")
        if _encoded(response):
            validator = ""  # bytes on the wire aren't bytes of the file: there is no place to go on at
        self._part.unlink(missing_ok=True)
        self._note.write_text(json.dumps({"url": self._url, "validator": validator}), encoding="utf-8")

    def _start_over(self) -> None:
        self._part.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)


def _encoded(response: httpx.Response) -> bool:
    """Some servers compress although they were asked not to."""
    return bool(response.headers.get("content-encoding", "identity") != "identity")


class _Writing:
    """The part, from `start` on. Opened apart from being made: a cancellation in between must not lose an open file."""

    def __init__(self, part: Path, start: int) -> None:
        self._part = part
        self._start = start
        self._file: BinaryIO | None = None

    def open(self) -> None:
        self._file = open(self._part, "r+b" if self._start else "wb", buffering=0)  # noqa: SIM115 - closed by close()
        self._file.truncate(self._start)
        self._file.seek(self._start)

    def write(self, chunk: bytes) -> None:
        assert self._file
        rest = memoryview(chunk)
        while rest:
            rest = rest[self._file.write(rest) or 0 :]

    def close(self) -> None:
        if self._file:
            self._file.close()


def _kind(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return " ".join(text.split())[:200]


def shown(url: str) -> str:
    """The address without credentials and query, for people."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:  # it is none; who fetches it will say so
        return url.partition("://")[0] + "://…"
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{parts.path}"
