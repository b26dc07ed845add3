"""What a forked child does to itself before it executes its program: everything that keeps it apart from us and the others.

Issue C adds its walls to `_separate`, in the order that is marked there.
"""

import dataclasses
import fcntl
import os
import resource
import signal

from fornada.keeper import linux
from fornada.keeper.orders import Limits

_REPORT_MOST = 1000
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
"""Those that the keeper, its interpreter or nohup handle or ignore; exec would keep an ignored one ignored."""


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
    """None: the keeper's own."""
    umask: int = 0o022


def become(program: Program, *, parent: int, report: int) -> None:
    """Never returns. Ends with 127 after writing to `report` why the program can't be executed."""
    doing = "start"
    try:
        try:
            report = _place(program.descriptors, report)
            _separate(program, parent)
            doing = f"execute {program.argv[0]}"
            if program.env is None:
                os.execvp(program.argv[0], program.argv)
            os.execvpe(program.argv[0], program.argv, program.env)
        except (OSError, ValueError) as error:
            os.write(report, f"can't {doing}: {_why(error)}".encode(errors="replace")[:_REPORT_MOST])
    finally:
        os._exit(127)


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def _separate(program: Program, parent: int) -> None:
    os.setsid()
    linux.die_with_parent()
    if os.getppid() != parent:  # it died before the tie was made, so the kernel will send nothing
        os._exit(127)
    if program.log:
        log = os.open(program.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    os.umask(program.umask)
    if program.cwd:
        os.chdir(program.cwd)
    # Issue C, here and in this order: cgroup, namespaces, mounts, uid and capabilities, then limits, then Landlock and seccomp.
    if program.limits is not None:
        _limit(program.limits)
    signal.set_wakeup_fd(-1)  # else a signal to the child would ring the keeper's bell
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _place(descriptors: tuple[int, ...], report: int) -> int:
    """Descriptor i becomes `descriptors[i]`, the report comes behind them, everything above is closed. The report's new number."""
    above = len(descriptors) + 1
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for descriptor in (*descriptors, report)]
    for number, copy in enumerate(copies):
        os.dup2(copy, number, inheritable=number < len(descriptors))
    linux.close_from(above)
    return len(descriptors)


def _limit(limits: Limits) -> None:
    _bound(resource.RLIMIT_CORE, limits.core_bytes)
    if limits.open_files:
        _bound(resource.RLIMIT_NOFILE, limits.open_files)
    if limits.file_bytes:
        _bound(resource.RLIMIT_FSIZE, limits.file_bytes)
    if limits.processes:
        _bound(resource.RLIMIT_NPROC, limits.processes)
    if limits.memory_bytes:
        # Not RLIMIT_AS: CUDA and TensorFlow reserve address space far beyond what they use.
        _bound(resource.RLIMIT_DATA, limits.memory_bytes)
    if limits.nice:
        os.nice(limits.nice)


def _bound(which: int, value: int) -> None:
    """An ordinary user can't go above the hard limit that is there."""
    _, hard = resource.getrlimit(which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))
