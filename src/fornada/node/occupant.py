"""What an instance looks like to the room: what it does, what it holds, when it was used. It decides nothing here."""

from fornada.core.lifecycle.life import ModelLife
from fornada.core.lifecycle.states import State
from fornada.core.names import Instant
from fornada.core.policy.memory import Phase
from fornada.node.idling import Idling
from fornada.node.intake import Intake
from fornada.node.ledger import Process
from fornada.node.runner import Runner
from fornada.node.site import Site


class Occupant:
    """The part of an instance that only looks. Attributes are the instance's."""

    life: ModelLife
    intake: Intake
    idling: Idling
    runner: Runner | None
    extra: bool
    _site: Site

    @property
    def process(self) -> Process | None:
        """As the ledger sees it."""
        runner = self.runner
        if runner is None:
            return None
        still = self.idling.parked
        return Process(runner.id, runner.pid, runner.device, runner.host, runner.grown_bytes, runner.was_ready, still)

    @property
    def booked_bytes(self) -> int:
        """Device memory that its process holds; 0 on the cpu, where the kernel counts."""
        return self._site.devices.held(self.runner.id, self.runner.device) if self.runner is not None else 0

    @property
    def phase(self) -> Phase:
        match self.life.state:
            case State.READY:
                return Phase.BUSY if self.calls or self._site.handover.predecessor else Phase.IDLE
            case State.DROWSY | State.FALLING_ASLEEP:
                return Phase.FALLING
            case State.ASLEEP | State.ROUSED:
                return Phase.ASLEEP
            case State.UNWANTED | State.DRAINING | State.STOPPING:
                return Phase.CLOSING
            case State.WAKING:
                return Phase.COMING
            case _:  # nobody has to wait until a guess has come up
                return Phase.IDLE if self.foreseen else Phase.COMING

    @property
    def foreseen(self) -> bool:
        return self.intake.crew.asked.foreseen

    @property
    def calls(self) -> int:
        """Requests that it works on, and those that wait: for any instance of the version, of which one counts them."""
        return (0 if self.extra else len(self.intake.line)) + (len(self.runner.link.calls) if self.runner is not None else 0)

    @property
    def last_used(self) -> Instant:
        return self.intake.last_used

    @property
    def served_any(self) -> bool:
        return self.life.served or self.extra

    @property
    def oldest_waiting(self) -> Instant | None:
        return None if self.extra else self.intake.line.oldest()
