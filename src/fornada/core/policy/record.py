"""What decided about memory and what was decided, in a form that can be kept: one JSON object a line.

A node writes it where the operator wants it ([node] record_choices); `fornada.simulate.replay` reads it, and so does whoever asks what
another policy would have chosen from the same moments.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from fornada.core.names import NEVER, Instant, ModelName
from fornada.core.policy.ladder import Ladder
from fornada.core.policy.memory import Bounds, DeviceRoom, Holding, Need
from fornada.core.policy.placement import Plan, plan

UNSET = Instant(0.0)


class Known(msgspec.Struct, frozen=True, tag_field="what", tag="known"):
    """The node has heard of a model, and counts how often it is asked from now on."""

    at: Instant
    model: ModelName
    hour: int
    """Whole hours of local time, as core.policy.demand counts them."""


class Came(msgspec.Struct, frozen=True, tag_field="what", tag="asked"):
    """A request came."""

    at: Instant
    model: ModelName


class Ready(msgspec.Struct, frozen=True, tag_field="what", tag="ready"):
    """A model that had got a place is ready. `ladder`: what its steps are taken to cost from now on."""

    at: Instant
    model: ModelName
    ladder: Ladder


class Learned(msgspec.Struct, frozen=True, tag_field="what", tag="learned"):
    """What its steps are taken to cost has changed since it became ready: its process says that it can sleep."""

    at: Instant
    model: ModelName
    ladder: Ladder


class Slept(msgspec.Struct, frozen=True, tag_field="what", tag="asleep"):
    """It has fallen asleep, and given back what it doesn't need there."""

    at: Instant
    model: ModelName
    ladder: Ladder


class Gone(msgspec.Struct, frozen=True, tag_field="what", tag="gone"):
    """It has given back its place."""

    at: Instant
    model: ModelName
    ladder: Ladder


class Moment(msgspec.Struct, frozen=True, tag_field="what", tag="plan"):
    """All that a plan was made from, and the plan."""

    at: Instant
    needs: list[Need]
    holdings: list[Holding]
    devices: list[DeviceRoom]
    bounds: Bounds
    made: Plan
    """But for `again_at`."""
    again_at: Instant | None
    """None: never; JSON has no word for it."""

    @property
    def plan(self) -> Plan:
        """As it was carried out."""
        return replace(self.made, again_at=NEVER if self.again_at is None else self.again_at)

    def planned_anew(self) -> Plan:
        """What core.policy chooses from the same."""
        return plan(self.needs, self.holdings, self.devices, bounds=self.bounds, now=self.at)


Entry = Known | Came | Ready | Learned | Slept | Gone | Moment
_decoder = msgspec.json.Decoder(Entry)


def moment(
    needs: Sequence[Need], holdings: Sequence[Holding], devices: Sequence[DeviceRoom], *, bounds: Bounds, now: Instant, made: Plan
) -> Moment:
    """To be kept."""
    again_at = None if made.again_at == NEVER else made.again_at
    return Moment(now, list(needs), list(holdings), list(devices), bounds, replace(made, again_at=UNSET), again_at)


def line(entry: Entry) -> bytes:
    """With its newline."""
    return msgspec.json.encode(entry) + b"\n"


def read(lines: Iterable[bytes]) -> list[Entry]:
    """Raises msgspec.DecodeError for what is no record, a last line that was cut off too."""
    return [_decoder.decode(line) for line in lines]
