"""An instance that has had no work for a while is parked: the keeper stops its processes. The next request lets them go on.

running --without work for park_after_s--> parked --a request, an unload, its end--> running

To everybody else it is ready all the time: what is sent to it meanwhile waits in its socket.
"""

import signal

from fornada.core.policy.parking import Rest, parks_in_s
from fornada.core.ports import ProcessPort
from fornada.core.specs import ServingSpec
from fornada.node.idleness import IdleWatch
from fornada.node.intake import Intake
from fornada.node.link import Link
from fornada.node.site import Site

REST_SHARE = 0.8
"""Of park_after_s: after so long a runner gives back what it can read again from its files, which it can't do once it is stopped."""


class Parking:
    """Of one instance."""

    def __init__(self, intake: Intake, *, serving: ServingSpec, site: Site) -> None:
        self.parked = False
        self._intake = intake
        self._after_s = site.settings.park_after_s
        self._may = serving.park and self._after_s > 0
        self._now = site.now
        self._keeper = site.keeper
        self._process: ProcessPort | None = None
        self._link: Link | None = None
        self._watch = IdleWatch(timeout_s=self._after_s, left_s=self._left_s, due=self._park, loop=site.loop)

    def begin(self, process: ProcessPort, link: Link, *, shared: bool) -> None:
        """It is ready. A process that is `shared` is never stopped: others may be at work in it."""
        if self._may and not shared:
            self._process, self._link = process, link
            self._watch.begin()

    def end(self) -> None:
        """It is to end, or somebody else's from here on: it runs."""
        self._watch.end()
        process, self._process, self._link = self._process, None, None
        if self.parked and process is not None:
            process.signal(signal.SIGCONT)
        self.parked = False

    def _left_s(self) -> float:
        link = self._link
        calls = len(self._intake.line) + (len(link.calls) + len(link.foreign) if link is not None else 0)
        # What a predecessor still works on goes over links that only it sees.
        allowed = link is not None and not self._keeper.predecessor
        rest = Rest(calls=calls, last_used=self._intake.last_used, allowed=allowed)
        return parks_in_s(rest, park_after_s=self._after_s, now=self._now())

    def _park(self) -> None:
        if self._process is not None:
            self.parked = True
            self._intake.hold(self._unpark)
            self._process.signal(signal.SIGSTOP)

    def _unpark(self) -> None:
        self.parked = False
        if self._process is not None:
            self._process.signal(signal.SIGCONT)
            self._watch.begin()


def rest_after_s(serving: ServingSpec, park_after_s: float) -> float:
    """What a runner is told; 0: never."""
    return park_after_s * REST_SHARE if serving.park else 0.0
