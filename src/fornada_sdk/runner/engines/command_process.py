"""The external server's process: a child of the runner that never outlives it, and whose words are the model's log.

It stays in the runner's session and process group, so that whatever ends those ends it and all it has started; a death signal from
the runner's main thread covers the time between the runner's end and the keeper's sweep.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Callable

from fornada_sdk.runner.engines import LoadError

LAUNCHER = """
import os, signal, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(ctypes.c_int(1), *map(ctypes.c_ulong, (signal.SIGKILL, 0, 0, 0)))
except (ImportError, AttributeError, OSError):
    pass
if os.getppid() != int(sys.argv[1]):
    os._exit(127)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
    signal.signal(number, signal.SIG_DFL)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except (OSError, ValueError) as error:
    sys.stderr.write("can't execute %s: %s\\n" % (sys.argv[2], getattr(error, "strerror", error)))
    sys.stderr.flush()
    os._exit(127)
"""
"""Makes the tie, then becomes the server. In a process of its own: code between fork and exec isn't safe where there are threads."""
LAST_WORDS_S = 0.2
"""How long the end of a dead server's output is awaited: a child of its own may hold the pipe open."""
KILL_S = 5.0
LINE_LONGEST = 65536
CHUNK = 65536


class Process:
    """A running server. Its output appears on sys.stdout and sys.stderr, line by line."""

    def __init__(self, argv: Sequence[str], *, cwd: str) -> None:
        """Must be called on the main thread, to whose life the server's is tied. Raises LoadError."""
        self._name = os.path.basename(argv[0])
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._on_death: Callable[[str], None] | None = None
        self._expected = False
        self.lines = 0
        """How many it has written."""
        self.last_line = ""
        self._last_error = ""
        command = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), *argv]
        try:
            self._process = subprocess.Popen(
                command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, close_fds=True
            )
        except (OSError, ValueError) as error:
            raise LoadError(f"can't start {self._name}: {error}") from None
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, name="fornada-output", daemon=True)
        self._reader.start()
        threading.Thread(target=self._watch, name="fornada-server", daemon=True).start()

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    @property
    def end(self) -> str:
        """How it ended, in words, with the last line it wrote."""
        code = self._process.returncode
        how = f"{self._name} ended with exit code {code}"
        if code is not None and code < 0:
            try:
                how = f"{self._name} was ended by {signal.Signals(-code).name}"
            except ValueError:
                how = f"{self._name} was ended by signal {-code}"
        said = self._last_error or self.last_line
        return f"{how}: {said}" if said else how

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended by then."""
        return self._ended.wait(timeout_s)

    def when_it_dies(self, told: Callable[[str], None]) -> None:
        """`told` is called once, by another thread, with `end`, unless the server ends because of `stop`."""
        with self._lock:
            self._on_death = told
            dead = self._ended.is_set() and not self._expected
        if dead:
            told(self.end)

    def stop(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after `grace_s`. What it has started itself ends with the runner's process group."""
        with self._lock:
            self._expected = True
        if self.running:
            self._process.terminate()
            if not self._ended.wait(grace_s):
                self._process.kill()
                self._ended.wait(KILL_S)

    def _watch(self) -> None:
        self._process.wait()
        self._reader.join(LAST_WORDS_S)
        with self._lock:
            self._ended.set()
            told = None if self._expected else self._on_death
        if told is not None:
            told(self.end)

    # ---- output ---------------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        assert self._process.stdout is not None and self._process.stderr is not None
        errors = self._process.stderr.fileno()
        rests = {self._process.stdout.fileno(): b"", errors: b""}
        poller = select.poll()
        for descriptor in rests:
            poller.register(descriptor, select.POLLIN)
        while rests:
            for descriptor, _ in poller.poll():
                chunk = os.read(descriptor, CHUNK)
                *lines, rest = (rests[descriptor] + chunk).split(b"\n")
                if not chunk or len(rest) > LINE_LONGEST:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    self._say(line, error=descriptor == errors)
                rests[descriptor] = rest
                if not chunk:
                    poller.unregister(descriptor)
                    del rests[descriptor]

    def _say(self, line: bytes, *, error: bool) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        if not text.strip():
            return
        (sys.stderr if error else sys.stdout).write(text + "\n")
        self.lines += 1
        self.last_line = text.strip()
        if error:
            self._last_error = text.strip()
