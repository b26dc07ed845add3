"""What may be brought up before anybody asks, where memory lies idle: never by sending somebody away."""

from collections.abc import Sequence
from dataclasses import replace

from fornada.core.names import Instant
from fornada.core.policy.demand import likely
from fornada.core.policy.memory import Bounds, DeviceRoom, Holding, Need, Phase
from fornada.core.policy.placement import Grant, plan

SOON_S = 300.0
LIKELY = 0.5
"""A request within SOON_S has to be at least as likely: what is brought up in vain costs energy and the machine's attention."""


def prefetch(
    wishes: Sequence[tuple[Need, float]],
    needs: Sequence[Need],
    holdings: Sequence[Holding],
    devices: Sequence[DeviceRoom],
    *,
    bounds: Bounds,
    now: Instant,
) -> Grant | None:
    """The one of `wishes` (with the rate that is expected of each, requests a second) that saves most and fits into what is free, or None.

    Nothing while anybody waits for room, or is on the way: what is free then is theirs, and the machine has enough to do.
    """
    if needs or any(holding.phase is Phase.COMING for holding in holdings):
        return None
    worth = [
        (need.in_s * likely(rate, within_s=SOON_S), need.key, need) for need, rate in wishes if likely(rate, within_s=SOON_S) >= LIKELY
    ]
    best_first = [need for _, _, need in sorted(worth, key=lambda one: (-one[0], one[1]))]
    # One plan for all of them: spare wishes take what is left over, those with the lower `since` first, and nobody goes for them.
    spare = [replace(need, since=Instant(float(place)), spare=True) for place, need in enumerate(best_first)]
    made = plan(spare, holdings, devices, bounds=bounds, now=now)
    return made.grants[0] if made.grants else None
