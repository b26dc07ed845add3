"""Runs builds through the keeper: uv, npm, convert scripts. Each has a log; a failed one says in a line what went wrong."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from fornada.core.ports import ExitStatus, KeeperPort, Limits, Sandbox, SpawnRefused
from fornada.node.provision.durable import no_space

LOGS_KEPT = 50
"""Logs of failed builds."""
WATCH_S = 0.25
LONGEST_S = 3600.0
"""A build that takes longer is ended: a first TensorFlow over a slow line takes minutes, a hanging one would take for ever."""
TAIL_BYTES = 65536
LIMITS = Limits(open_files=4096, nice=5)
_FULL = ("No space left on device", "os error 28", "Disk quota exceeded", "ENOSPC")
_REASON_LONGEST = 600


class Keeper(KeeperPort, Protocol):
    """The keeper, as far as builds need it."""

    adopted_builds: list[str]
    """Builds of a predecessor that still run."""

    def end_build(self, build: str) -> None:
        """Kills a build with all its processes."""


class BuildFailed(Exception):
    """The build ended badly. The message is one line, from what it printed last."""

    def __init__(self, reason: str, *, log: Path, killed: bool = False) -> None:
        """`killed`: by a signal, so that it may end well another time."""
        super().__init__(reason)
        self.reason = reason
        self.killed = killed
        self._log = log

    def forget_log(self) -> None:
        """For an attempt that was expected to fail: nobody should find its log and wonder."""
        with contextlib.suppress(OSError):
            self._log.unlink()


class Builds:
    """Starts builds and waits for them, a few at a time."""

    def __init__(self, keeper: Keeper | None, logs: Path, *, at_once: int = 4) -> None:
        self._keeper = keeper
        self._logs = logs
        self._slots = asyncio.Semaphore(at_once)
        self.running = 0

    async def run(
        self,
        what: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        sandbox: Sandbox,
        told: Callable[[str], None] | None = None,
        limits: Limits = LIMITS,
        longest_s: float = LONGEST_S,
    ) -> str:
        """Runs it to its end; what it printed. `what` names it ("environment"), `told` gets its last line as it changes.

        Raises BuildFailed, DiskFull, KeeperLost. Cancelling ends the build.
        """
        async with self._slot():
            build = f"{what}-{secrets.token_hex(4)}"
            self._logs.mkdir(parents=True, exist_ok=True)
            log = self._logs / f"{build}.log"
            if self._keeper is None:
                raise BuildFailed(f"the {what} build can't be started: no node runs", log=log)
            work = self._keeper.build(build, argv=argv, env=env, cwd=str(cwd), limits=limits, sandbox=sandbox, log=str(log))
            try:
                async with asyncio.timeout(longest_s):
                    status = await (_watched(work, log, told) if told else work)
            except SpawnRefused as error:
                raise BuildFailed(f"the {what} build can't be started: {error}", log=log) from None
            except TimeoutError:
                raise BuildFailed(f"the {what} build took longer than {longest_s:g} s and was ended", log=log) from None
        return self._outcome(what, status, log, cwd)

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        async with self._slots:
            self.running += 1
            try:
                yield
            finally:
                self.running -= 1

    def _outcome(self, what: str, status: ExitStatus, log: Path, cwd: Path) -> str:
        """What it printed. Raises BuildFailed, DiskFull."""
        output = _tail(log)
        if status.code == 0:
            with contextlib.suppress(OSError):
                log.unlink()
            return output
        self._forget_old_logs()
        if any(sign in output for sign in _FULL):
            raise no_space(cwd)
        ended = f"signal {status.signal}" if status.signal else f"exit code {status.code}"
        reason = last_error(output) or f"the {what} build ended with {ended} and no word; its log is {log}"
        raise BuildFailed(reason, log=log, killed=bool(status.signal))

    def _forget_old_logs(self) -> None:
        with contextlib.suppress(OSError):
            logs = sorted((entry.stat().st_mtime, entry.path) for entry in os.scandir(self._logs) if entry.name.endswith(".log"))
            for _, path in logs[:-LOGS_KEPT]:
                os.unlink(path)


async def _watched(work: Awaitable[ExitStatus], log: Path, told: Callable[[str], None]) -> ExitStatus:
    async def watch() -> None:
        last = ""
        while True:
            await asyncio.sleep(WATCH_S)
            lines = _tail(log, 4096).splitlines()
            if lines and lines[-1].strip() and lines[-1] != last:
                last = lines[-1]
                told(last.strip()[:200])

    watcher = asyncio.create_task(watch(), name=f"watch {log.name}")
    try:
        return await work
    finally:
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher


def last_error(output: str) -> str:
    """What a tool said about its failure, in one line: from the last line that begins with "error" (uv, npm) or the exception
    that ended a Python script, to the end."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    starts = [index for index, line in enumerate(lines) if line.lower().startswith(("error", "npm error", "npm err!", "× "))]
    if starts:
        found = [line for line in lines[starts[0] :] if not line.startswith(("hint:", "npm error A complete log"))]
        text = "; ".join(line.removeprefix("error:").removeprefix("cause:").strip() for line in found)
    else:
        text = lines[-1] if lines else ""
    return text if len(text) <= _REASON_LONGEST else f"{text[: _REASON_LONGEST - 1]}…"


def _tail(log: Path, count: int = TAIL_BYTES) -> str:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - count))
            return file.read(count).decode("utf-8", "replace")
    except OSError:
        return ""
