"""Makes what a model needs before it can start: its bundle, environment and artifacts.

In: a model's spec and files.
Out: content-addressed read-only folders, locks, or the reason why not.
May import: `telemetry`, `core`, `fornada_sdk.wire`.
"""

from fornada.node.provision.provisioner import Provisioner

__all__ = ["Provisioner"]
