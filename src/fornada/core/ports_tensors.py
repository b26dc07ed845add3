"""What is known of models' tensors beyond what model.toml says."""

from typing import Protocol

from fornada.core.names import VersionDigest
from fornada.core.specs import TensorsSpec


class SignaturesPort(Protocol):
    """The tensors that loaded weights tell of themselves."""

    def of(self, digest: VersionDigest) -> TensorsSpec | None:
        """Those of a version; None: no instance of it has been ready since the control plane began."""


class NoSignatures:
    """Nothing is known."""

    def of(self, digest: VersionDigest) -> TensorsSpec | None:
        return None
