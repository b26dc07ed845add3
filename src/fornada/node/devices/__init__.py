"""The devices of this server, real and fake, and the bytes on them.

In: settings, readings of drivers and of /proc.
Out: snapshots for the ledger and the API.
May import: `telemetry`, `core`, `fornada_sdk.wire`.
"""

from fornada.node.devices.inventory import Devices, inventory

__all__ = ["Devices", "inventory"]
