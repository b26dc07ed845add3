"""What every instance of a node works with."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fornada.core.names import Instant
from fornada.core.ports import Clock, KeeperPort, ProvisionPort, StorePort
from fornada.core.settings import NodeSettings
from fornada.core.usage import Uncounted, UsagePort
from fornada.node.deadlines import Wheel
from fornada.node.devices import Devices
from fornada.node.faults import Faults
from fornada.node.handover import Handover
from fornada.node.hosts import Hosts
from fornada.node.ledger import Ledger
from fornada.node.moves import Moves
from fornada.node.outbound import WayOut
from fornada.node.output import Crowd
from fornada.node.room import Room
from fornada.node.signatures import Signatures
from fornada.node.tasks import Tasks
from fornada.node.zygotes import Zygotes
from fornada.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Site:
    """Made once by the manager."""

    clock: Clock
    now: Callable[[], Instant]
    """clock.now, bound once: it is asked for every request."""
    loop: asyncio.AbstractEventLoop
    keeper: KeeperPort
    provision: ProvisionPort
    store: StorePort
    devices: Devices
    telemetry: Telemetry
    settings: NodeSettings
    wheel: Wheel
    room: Room
    ledger: Ledger
    moves: Moves
    way_out: WayOut
    hosts: Hosts
    zygotes: Zygotes
    tasks: Tasks
    faults: Faults
    crowd: Crowd
    scratch: Path
    """Folder in which every instance gets a directory of its own."""
    inherited: Mapping[str, str]
    release: str
    next_call: Callable[[], int]
    """Ids of requests on the wire: the epoch above, a counter below."""
    passed: Callable[[str, str], None]
    """Told of each command of a life that was carried out, and whose: node.fault_port."""
    new_suffix: Callable[[], str]
    """Chance, for the ids of instances."""
    usage: UsagePort = field(default_factory=Uncounted)
    handover: Handover = field(default_factory=Handover)
    signatures: Signatures = field(default_factory=Signatures)
