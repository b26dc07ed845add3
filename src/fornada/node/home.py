"""What an instance knows of the model that it belongs to."""

from typing import TYPE_CHECKING, Protocol

from fornada.core.lifecycle.events import Outcome
from fornada.core.names import ModelName

if TYPE_CHECKING:
    from fornada.node.instance import Instance


class Home(Protocol):
    """The model."""

    name: ModelName

    def keeps(self, instance: "Instance") -> bool:
        """It is pinned, or wanted by min_instances: neither idleness nor another model ends it."""

    def starting(self, instance: "Instance") -> tuple[int, int]:
        """A process of it is about to be started: (load attempt, load count) of that one."""

    def closed(self, instance: "Instance") -> None:
        """No further request goes to it."""

    def announced(self, instance: "Instance", outcome: Outcome) -> None:
        """The instance has come to a rest, or is ready."""
