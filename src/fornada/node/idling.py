"""What becomes of an instance that has no work: it is parked after a while, and ended after longer."""

from collections.abc import Callable

from fornada.core.policy.idle import Use, ends_in_s
from fornada.core.specs import ServingSpec
from fornada.node.idleness import IdleWatch
from fornada.node.intake import Intake
from fornada.node.parking import Parking
from fornada.node.runner import Runner
from fornada.node.site import Site


class Idling:
    """Of one instance. Watches between `begin` and `end`, while it is ready and this control plane decides about it."""

    def __init__(self, intake: Intake, *, serving: ServingSpec, use: Callable[[], Use], due: Callable[[], None], site: Site) -> None:
        """`use` is how it is used now; `due` is called when it has been idle for idle_timeout_s."""
        self._parking = Parking(intake, serving=serving, site=site)
        timeout_s = serving.idle_timeout_s
        self._watch = IdleWatch(
            timeout_s=timeout_s,
            left_s=lambda: ends_in_s(use(), idle_timeout_s=timeout_s, now=site.now()),
            due=due,
            loop=site.loop,
        )

    @property
    def parked(self) -> bool:
        """Its processes are stopped until the next request."""
        return self._parking.parked

    def begin(self, runner: Runner) -> None:
        self._watch.begin()
        self._parking.begin(runner.process, runner.link, shared=bool(runner.host))

    def end(self) -> None:
        """What is parked goes on."""
        self._watch.end()
        self._parking.end()
