"""What the processes that an instance has had so far have shown of it."""

from dataclasses import dataclass

from fornada.core.ports import ExitStatus
from fornada.node.runner import Runner, describe_end


@dataclass(slots=True)
class Past:
    """Of one instance. Changed by it alone, when a process ends."""

    last_line: str = ""
    """What the last process that ended had said last on stderr."""
    died_of: str = ""
    """How that one ended, for people."""
    peak_bytes: int = 0
    """The most that one of them took."""
    host_crashes: int = 0
    """Ends of shared processes while this instance was at work or coming up."""

    def take_in(self, runner: Runner, status: ExitStatus, *, booked_bytes: int) -> bool:
        """One has ended. Whether the instance had nothing to do with it: it did nothing in a process that others share."""
        self.last_line = runner.output.last_error_line()
        self.died_of = describe_end(status, last_line=self.last_line)
        self.peak_bytes = max(self.peak_bytes, booked_bytes or runner.grown_bytes or status.max_rss_bytes)
        if not runner.host or status.code == 0:
            return False
        blameless = not runner.is_suspect()
        self.host_crashes += not blameless
        return blameless
