"""Starting, signalling and reaping child processes."""

import contextlib
import dataclasses
import os
import signal
from collections.abc import Callable
from typing import NamedTuple

from fornada.keeper import namespaces, separation
from fornada_sdk.sandbox import forking

REPORT_MOST = 4096


class Started(NamedTuple):
    """A forked child on its way to its program."""

    pid: int
    """As this process sees it."""
    outer: int
    """As the operator sees it."""
    report: int
    """Non-blocking read end: its end says that the program is executing, text before it says why it can't be."""


@dataclasses.dataclass(frozen=True, slots=True)
class Exit:
    """How a child ended. One of `code` and `signal` is set, unless its zygote, which had to reap it, didn't say how."""

    code: int | None
    signal: int | None
    max_rss_bytes: int = 0
    cpu_s: float = 0.0
    over_memory: bool = False
    """It was ended because it held more memory than its bound."""
    with_host: bool = False
    """Of a member: it went with the process that it shared, whose end this is."""

    def __str__(self) -> str:
        if self.code is None and self.signal is None:
            return "ended, nobody knows how"
        return f"exited with code {self.code}" if self.signal is None else f"was killed by signal {self.signal} ({_name(self.signal)})"

    def head(self) -> dict[str, object]:
        """EXITED's fields."""
        return {
            "status": self.code,
            "signal": self.signal,
            "max_rss_bytes": self.max_rss_bytes,
            "cpu_s": round(self.cpu_s, 6),
            "over_memory": self.over_memory,
            "with_host": self.with_host,
        }


def start(program: separation.Program) -> Started:
    """Forks a child that becomes `program`. Doesn't wait for it: see `Started.report`. Raises OSError."""
    parent, behind = os.getpid(), program.behind
    return fork(lambda report: separation.become(program, parent=parent, report=report), first=behind is not None and behind.own_pids)


def fork(child: Callable[[int], object], *, first: bool) -> Started:
    """Forks a child that calls `child` with the write end of its report, and never returns from there. It has all signals blocked; with
    `first` it is process 1 of a pid namespace. Raises OSError."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read_end, False)
    # A signal between fork and exec would run the keeper's handlers in the child, or be lost there.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = forking.fork_first() if first else os.fork()
        if pid == 0:
            child(write_end)
    except OSError:
        os.close(read_end)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(write_end)
    try:
        return Started(pid, namespaces.outer_pid(pid), read_end)
    except OSError:  # want of descriptors, for one
        os.close(read_end)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def read_report(report: int) -> str | None:
    """What stands in a child's report: "" once its program executes, a reason if it can't, None while that is open."""
    try:
        return os.read(report, REPORT_MOST).decode(errors="replace")
    except BlockingIOError:
        return None


def signal_group(pid: int, number: int) -> None:
    """To the child's whole process group. The child must not be reaped yet: its number could be another's."""
    with contextlib.suppress(PermissionError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:  # it hasn't made its session yet
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def next_dead() -> int | None:
    """The pid of a child that has ended and isn't reaped, None if there is none."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None


def reap(pid: int) -> Exit:
    """The end of a dead child, whose group is killed first: members that stay behind would keep what it held."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return Exit(
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        max_rss_bytes=usage.ru_maxrss * 1024,
        cpu_s=usage.ru_utime + usage.ru_stime,
    )


def end_strays(known: dict[int, int], sessions: set[int]) -> bool:
    """Kills children that nobody knows: processes that outlived the one that made them and reached us as the next reaper.

    `known` are pids with their pids outside; strays of the `sessions` are left to them. True if any was there.
    """
    found = False
    for pid, session in namespaces.other_children(set(known.values())):
        if pid and pid not in known and session not in sessions:
            found = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    return found


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time"
