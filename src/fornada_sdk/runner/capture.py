"""What model code prints, as lines that say which request they belong to.

Descriptors 1 and 2 are the write end of one pipe. Python's own output goes through here: each line becomes one write of
`\\x1e{"stream","line","request_id","time"}\\n`. What C code writes to the descriptors arrives as plain lines.

A pipe that nobody empties must not hold the model up for ever (the control plane may be dead): after STALL_S lines are
dropped, and counted, until there is room again.
"""

from __future__ import annotations

import io
import json
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from fornada_sdk.api_context import CURRENT, log_line

LINE_LONGEST = 16384
"""Characters; the rest of a longer line is cut off."""
RECORD_LONGEST = 60000
"""Bytes; the node takes lines of up to 64 KiB."""
STALL_S = 1.0
MARK = b"\x1e"


class Output:
    """The pipe's write end. Any thread may write."""

    def __init__(self, fd: int, *, owns: bool = False) -> None:
        """A second description of the same pipe, where /proc allows it, may be told not to block. `fd` is left as it is, unless
        the output `owns` it."""
        try:
            if not stat.S_ISFIFO(os.fstat(fd).st_mode):
                raise OSError("a file would be written from its beginning")
            self._fd = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._fd = fd
        else:
            if owns:
                os.close(fd)
        # Reentrant: a signal handler of the model's may print while this thread is in the middle of a line.
        self._lock = threading.RLock()
        self._dropped = 0
        self._rest = b""

    def renew_in_child(self) -> None:
        """After a fork: the lock may have been held by a thread that the child doesn't have."""
        self._lock = threading.RLock()

    def take_over(self, *descriptors: int) -> None:
        """What C code writes to these descriptors comes here from now on. It doesn't wait: what the pipe has no room for is lost."""
        for descriptor in descriptors:
            os.dup2(self._fd, descriptor)

    def close(self) -> None:
        """For an output that owns its descriptor: nobody writes any more."""
        os.close(self._fd)

    def line(self, stream: str, text: str, **more: Any) -> None:
        """One line, tied to the request at hand."""
        current = CURRENT.get()
        record = {
            "stream": stream,
            "line": text[:LINE_LONGEST],
            "request_id": current.request_id if current is not None else "",
            "time": now_text(),
            **more,
        }
        data = _record(record)
        if len(data) > RECORD_LONGEST:  # control characters, of which each becomes six
            data = _record({**record, "line": text[: LINE_LONGEST // 2]})
        self._write(data)

    def _write(self, data: bytes) -> None:
        with self._lock:
            patience_s = 0.0 if self._dropped else STALL_S
            self._rest = self._rest[self._put(self._rest, patience_s) :]
            if self._rest:
                self._dropped += 1
                return
            if self._dropped:
                data = self._note() + data
            done = self._put(data, patience_s)
            if done:
                self._dropped = 0
                self._rest = data[done:]
            else:
                self._dropped += 1

    def _put(self, data: bytes, patience_s: float) -> int:
        """How many bytes of `data` the pipe has taken; it is given `patience_s` for each piece."""
        done = 0
        while done < len(data):
            try:
                done += os.write(self._fd, data[done:])
            except BlockingIOError:
                if not self._writable(patience_s):
                    break
            except OSError:
                return len(data)  # the pipe has no reader left: the keeper is gone, and so are we, soon
        return done

    def _note(self) -> bytes:
        line = f"fornada: {self._dropped} lines dropped, nobody read them"
        return _record({"stream": "stderr", "line": line, "request_id": "", "time": now_text()})

    def _writable(self, timeout_s: float) -> bool:
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        return bool(poller.poll(timeout_s * 1000))

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        """An entry of context.log."""
        self.line("log", log_line(level, message, fields), level=level)


def _record(record: Mapping[str, Any]) -> bytes:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return MARK + text.encode("utf-8", "replace") + b"\n"


def now_text() -> str:
    """RFC 3339, UTC, milliseconds."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


class Lines(io.TextIOBase):
    """sys.stdout or sys.stderr. A line is written when it is whole; each thread has its own unfinished one."""

    unfinished = False
    """Some thread may have an unfinished line."""

    def __init__(self, output: Output, name: str, fd: int) -> None:
        self.output = output
        self._stream = name
        self._fd = fd
        self._local = threading.local()
        self.buffer = _Bytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "replace"

    @property
    def name(self) -> str:
        return f"<{self._stream}>"

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        local = self._local
        whole = getattr(local, "rest", "") + text
        if "\n" not in text:
            # A line without end must not fill the memory: what can't be shown any more is dropped as it comes.
            local.rest = whole[: LINE_LONGEST + 1]
            Lines.unfinished = True
            return len(text)
        *lines, local.rest = whole.split("\n")
        if local.rest:
            Lines.unfinished = True
        for line in lines:
            self.output.line(self._stream, line.rstrip("\r"))
        return len(text)

    def end_line(self) -> None:
        """What this thread has printed without an end of line, as a line."""
        rest = getattr(self._local, "rest", "")
        if rest:
            self._local.rest = ""
            self.output.line(self._stream, rest)

    def flush(self) -> None:
        """Whole lines are out already, and half a line can't be tied to anything."""

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._fd


class _Bytes(io.RawIOBase):
    """`sys.stdout.buffer`."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def write(self, data: Any) -> int:
        self._lines.write(bytes(data).decode("utf-8", "replace"))
        return len(data)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._lines.fileno()


def capture() -> Output:
    """From here on this process' output goes to descriptor 1, line by line."""
    output = Output(1)
    sys.stdout = Lines(output, "stdout", 1)
    sys.stderr = Lines(output, "stderr", 2)
    return output


def redirect(output: Output) -> None:
    """After `capture`: what is printed from here on goes to `output`; a line that isn't whole still belongs to the one before."""
    end_lines()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Lines):
            stream.output = output
    output.take_over(1, 2)


def end_lines() -> None:
    """At a request's end: this thread's unfinished line must not be tied to the next one."""
    Lines.unfinished = False
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Lines):
            stream.end_line()
