"""What becomes of a request whose model ran out of device memory over it: the instance begins again with more, and works on it once more.

A process can't be given more than it was planned with while others hold the rest, so it ends in good order and stands in line with the
new number; who has to go for it is chosen as for any other. Whatever more wouldn't help is refused at once.
"""

from typing import Protocol

from fornada.core.errors import OutOfDeviceMemory
from fornada.core.lifecycle.states import State
from fornada.node.call import WAITING, Call
from fornada.node.intake import Intake
from fornada.node.room import Resident
from fornada.node.site import Site

RETRY_S = 1.0


class Short(Resident, Protocol):
    """The instance."""

    intake: Intake

    @property
    def state(self) -> State: ...

    def unwanted(self, *, grace_s: float, reason: str) -> None:
        """It is to end."""


def tried_again(short: Short, call: Call, error: OutOfDeviceMemory, *, site: Site) -> OutOfDeviceMemory | None:
    """`call` has ended in `error`. None: it waits for the next process; else what its caller is told, with both numbers."""
    charges = site.room.charges(short)
    needed, said = site.ledger.shortage(short, error.message)
    told = OutOfDeviceMemory(f"{error.message} ({said})" if said else error.message, retry_after_s=RETRY_S)
    helps = charges is not None and charges.device.bytes < needed <= site.devices.total_bytes(site.room.device_of(short))
    if call.tried_again or not helps or short.state is not State.READY or site.handover.hands_off:
        return told
    site.ledger.expect(short, needed)
    call.tried_again = True
    call.state = WAITING
    short.intake.line.add(call)
    short.unwanted(grace_s=site.settings.drain_s, reason="its device memory ran out: it comes back with more")
    return None
