"""KeeperPort's builds without a keeper: children of the test, for tests of what is built."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fornada.core.ports import ExitStatus, Launch, Limits, ProcessPort, Sandbox, SpawnRefused


class Build(NamedTuple):
    """One that was asked for."""

    build: str
    argv: Sequence[str]
    env: Mapping[str, str]
    limits: Limits


class DirectBuilds:
    """Runs builds as plain children in their own session. `kill_after(s)` kills each of the next ones at that moment."""

    epoch = 1
    predecessor = False

    def __init__(self) -> None:
        self.asked: list[Build] = []
        self.adopted_builds: list[str] = []
        self.ended: list[str] = []
        self.kill_next_after_s: float | None = None

    async def spawn(self, launch: Launch) -> ProcessPort:
        raise SpawnRefused("these are builds only")

    async def build(
        self, build: str, *, argv: Sequence[str], env: Mapping[str, str], cwd: str, limits: Limits, sandbox: Sandbox, log: str
    ) -> ExitStatus:
        self.asked.append(Build(build, argv, env, limits))
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            try:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    env=dict(env),
                    cwd=cwd,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=descriptor,
                    stderr=descriptor,
                    start_new_session=True,
                )
            except OSError as error:
                raise SpawnRefused(str(error)) from None
        finally:
            os.close(descriptor)
        try:
            if self.kill_next_after_s is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.kill_next_after_s):
                        await process.wait()
                _kill(process)
            code = await process.wait()
        except asyncio.CancelledError:
            _kill(process)
            await process.wait()
            raise
        return ExitStatus(code if code >= 0 else None, -code if code < 0 else None)

    def end_build(self, build: str) -> None:
        self.ended.append(build)

    def kinds(self) -> list[str]:
        """What was built, in order: "environment", "lock", ..."""
        return [asked.build.rsplit("-", 1)[0] for asked in self.asked]


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
