"""The way out for models that name hosts: their connections are made, checked and carried here, never in their processes.

In: wishes that runners send over their outbound channels, hostile ones too.
Out: connections to the hosts that a version names; refusals; bytes counted, ends logged.
May import: `node.own_addresses`, `node.tasks`, `telemetry`, `core`, `fornada_sdk.wire`.
"""

from fornada.node.outbound.gate import Gate, named_places
from fornada.node.outbound.way_out import WayOut

__all__ = ["Gate", "WayOut", "named_places"]
