"""What becomes of an instance that has no work: it is parked after a while, and put to sleep or ended after longer."""

from collections.abc import Callable

from fornada.core.policy.idle import Use, ends_in_s
from fornada.core.specs import ServingSpec
from fornada.node.idleness import IdleWatch
from fornada.node.intake import Intake
from fornada.node.parking import Parking
from fornada.node.runner import Runner
from fornada.node.site import Site


class Idling:
    """Of one instance. Watches between `begin` or `begin_asleep` and `end`, while this control plane decides about it."""

    def __init__(
        self,
        intake: Intake,
        *,
        serving: ServingSpec,
        use: Callable[[], Use],
        due: Callable[[], None],
        over: Callable[[], None],
        site: Site,
    ) -> None:
        """`use` is how it is used now; `due` is called when it has been idle for idle_timeout_s, `over` when it has slept for as long."""
        self._parking = Parking(intake, serving=serving, site=site)
        self._now = site.now
        self._asleep_since = site.now()
        timeout_s = serving.idle_timeout_s

        def watch(used: Callable[[], Use], then: Callable[[], None]) -> IdleWatch:
            left_s = lambda: ends_in_s(used(), idle_timeout_s=timeout_s, now=site.now())  # noqa: E731
            return IdleWatch(timeout_s=timeout_s, left_s=left_s, due=then, loop=site.loop)

        self._watch = watch(use, due)
        self._sleep_watch = watch(lambda: use()._replace(last_used=self._asleep_since), over)

    @property
    def parked(self) -> bool:
        """Its processes are stopped until the next request."""
        return self._parking.parked

    def begin(self, runner: Runner) -> None:
        """It is ready."""
        self._watch.begin()
        self._parking.begin(runner.process, runner.link, shared=bool(runner.host))

    def begin_asleep(self) -> None:
        """It has fallen asleep."""
        self._asleep_since = self._now()
        self._sleep_watch.begin()

    def end(self) -> None:
        """What is parked goes on."""
        self._watch.end()
        self._sleep_watch.end()
        self._parking.end()
