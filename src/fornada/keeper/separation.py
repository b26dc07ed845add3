"""What a forked child does to itself before it executes its program: everything that keeps it apart from us and the others."""

import dataclasses
import fcntl
import os
import signal
from collections.abc import Sequence

from fornada_sdk.sandbox import limits, syscalls
from fornada_sdk.sandbox.enter import EnterFailed, enter
from fornada_sdk.sandbox.plan import Limits, Plan

_REPORT_MOST = 1000
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
"""Those that the keeper, its interpreter or nohup handle or ignore; exec would keep an ignored one ignored."""


@dataclasses.dataclass(frozen=True, slots=True)
class Behind:
    """Walls that a child is to go behind: see `walls.Walls`."""

    plan: Plan
    descriptors: tuple[int, ...]
    """What the plan counts, ours; the child has copies."""
    keeper: int
    """Our pidfd: it can be read once we have ended."""

    @property
    def own_pids(self) -> bool:
        """The child is process 1 of a pid namespace. Where there is any namespace there is that one."""
        return bool(self.plan.namespaces)


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """What a child becomes."""

    argv: tuple[str, ...]
    env: dict[str, str] | None
    """Its whole environment. None: the keeper's own, which is main's (for the control plane only)."""
    cwd: str
    """Empty: the keeper's."""
    descriptors: tuple[int, ...]
    """What its descriptors 0, 1, 2 ... are; it has no others."""
    log: str = ""
    """File that takes the place of descriptors 1 and 2."""
    limits: Limits | None = None
    """Without walls. None: the keeper's own."""
    umask: int = 0o022
    behind: Behind | None = None
    """None: nothing keeps it from what we can do ourselves."""


def become(program: Program, *, parent: int, report: int) -> None:
    """Never returns. Ends with 127 after writing to `report` why the program can't be executed."""
    doing = "can't start"
    try:
        try:
            behind = program.behind
            others = (*behind.descriptors, behind.keeper) if behind is not None else ()
            report, *others_here = place(program.descriptors, (report, *others))
            _separate(program, parent, others_here)
            doing = f"can't execute {program.argv[0]}"
            if program.env is None:
                os.execvp(program.argv[0], program.argv)
            os.execvpe(program.argv[0], program.argv, program.env)
        except (OSError, ValueError) as error:
            os.write(report, f"{doing}: {_why(error)}".encode(errors="replace")[:_REPORT_MOST])
        except EnterFailed as failure:
            os.write(report, f"no walls can be built around it: {failure}".encode(errors="replace")[:_REPORT_MOST])
    finally:
        os._exit(127)


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def _separate(program: Program, parent: int, others: list[int]) -> None:
    os.setsid()
    if program.log:
        log = os.open(program.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    os.umask(program.umask)
    if program.behind is not None:
        *counted, keeper = others
        enter(program.behind.plan, counted, parent=keeper)
    else:
        syscalls.die_with_parent()
        if os.getppid() != parent:  # it died before the tie was made, so the kernel will send nothing
            os._exit(127)
        if program.limits is not None:
            limits.apply(program.limits)
    if program.cwd:
        os.chdir(program.cwd)
    renew_signals()


def renew_signals() -> None:
    """As a new process has them."""
    signal.set_wakeup_fd(-1)  # else a signal to the child would ring the keeper's bell
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def place(descriptors: Sequence[int], others: Sequence[int]) -> list[int]:
    """Descriptor i becomes `descriptors[i]`, the others come behind them and don't outlive exec, everything above is closed.

    The others' new numbers.
    """
    count = len(descriptors) + len(others)
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, count) for descriptor in (*descriptors, *others)]
    for number, copy in enumerate(copies):
        os.dup2(copy, number, inheritable=number < len(descriptors))
    syscalls.close_from(count)
    return list(range(len(descriptors), count))
