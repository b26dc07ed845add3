"""What the processes that an instance has had so far have shown of it, and how they ended, in words."""

import signal
from dataclasses import dataclass

from fornada.core.ports import ExitStatus
from fornada.node.runner import Runner

UNASKED = "which the node had not asked it to: model code called exit, or something else on this machine sent it SIGTERM"
OVER_OWN_MEMORY = "used more memory than it may (files in its scratch may count, too): raise [resources] memory in model.toml"
OVER_SHARED_MEMORY = (
    "shared a process whose models together used more memory than they may: raise [node] packed_memory, "
    "or set [serving] packed = false in the model.toml of the largest"
)


@dataclass(slots=True)
class Past:
    """Of one instance. Changed by it alone, when a process ends."""

    last_line: str = ""
    """What the last process that ended had said last on stderr."""
    died_of: str = ""
    """How that one ended, for people who wonder, since nobody wanted it to."""
    peak_bytes: int = 0
    """The most that one of them took."""
    host_crashes: int = 0
    """Ends of shared processes while this instance was at work or coming up."""

    def take_in(self, runner: Runner, status: ExitStatus, *, booked_bytes: int) -> bool:
        """One has ended. Whether the instance had nothing to do with it: it did nothing in a process that others share."""
        self.last_line = runner.output.last_error_line(under_way=runner.link.requests_under_way())
        self.died_of = describe_death(status, last_line=self.last_line)
        self.peak_bytes = max(self.peak_bytes, booked_bytes or runner.grown_bytes or status.max_rss_bytes)
        if not runner.host or not crashed(status):
            return False
        blameless = not runner.is_suspect()
        self.host_crashes += not blameless
        return blameless


def crashed(status: ExitStatus) -> bool:
    """It didn't take its leave: it failed, was killed, or went with the process that it shared."""
    return status.code != 0 or status.with_host


def describe_death(status: ExitStatus, *, last_line: str) -> str:
    """How a process ended that nobody wanted to end. `last_line` is what it had said last on stderr."""
    how = f"{describe_end(status)}, {UNASKED}" if status.code == 0 else describe_end(status)
    if last_line and status.signal == signal.SIGKILL:  # who is killed has no last words that could be the reason
        return f"{how}; last line on stderr: {last_line}"
    return f"{how}: {last_line}" if last_line else how


def describe_end(status: ExitStatus) -> str:
    """How a process ended, for people."""
    if status.over_memory and status.code != 0:  # what it had started may have been ended for it alone
        return f"ended because it {OVER_SHARED_MEMORY if status.with_host else OVER_OWN_MEMORY}"
    if status.code is None and status.signal is None:
        return "ended, and the process that had forked it didn't say how"
    if status.signal is None:
        return f"exit code {status.code}"
    try:
        return f"ended by {signal.Signals(status.signal).name}"
    except ValueError:
        return f"ended by signal {status.signal}"
