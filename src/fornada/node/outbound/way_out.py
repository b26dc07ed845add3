"""What the gates of all instances share."""

import asyncio
from collections.abc import Callable, Collection

from fornada.core.policy.outbound import Outbound, Place
from fornada.node.outbound.lookups import LookUp, Lookups, system_look_up
from fornada.node.own_addresses import own_among
from fornada.node.tasks import Tasks
from fornada.telemetry import Telemetry

MOST_IN_ALL = 1024
"""Connections of all instances together: each takes two descriptors of the control plane."""
CONNECT_S = 15.0
"""To find and to reach a host."""
IDLE_S = 300.0
"""Without a byte in either direction, as where a reader has stopped reading."""


class WayOut:
    """Made once by the manager."""

    def __init__(
        self,
        *,
        policy: Outbound,
        telemetry: Telemetry,
        tasks: Tasks,
        loop: asyncio.AbstractEventLoop,
        look_up: LookUp = system_look_up,
        own_among: Callable[[Collection[str]], Collection[str]] = own_among,
        connect_s: float = CONNECT_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self.policy = policy
        self.telemetry = telemetry
        self.tasks = tasks
        self.loop = loop
        self.connect_s = connect_s
        self.idle_s = idle_s
        self.own_among = own_among
        """Which of some addresses are this machine's own. Raises OSError."""
        self.open = 0
        """Connections, those that are still being made among them."""
        self._lookups = Lookups(look_up, loop)

    @property
    def is_full(self) -> bool:
        return self.open >= MOST_IN_ALL

    async def addresses(self, wanted: Place) -> Collection[str]:
        """Raises OSError, where there are none."""
        return await self._lookups.find(wanted)
