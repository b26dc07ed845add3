"""How many items of jobs a model may be given now (core.jobs.JobRoom)."""

from collections.abc import Mapping

from fornada.core.names import ModelName
from fornada.node.model import Model

UNLOADED = 1
"""Items that bring a model up: it is loaded for one as for many."""


class IdleCapacity:
    """Over the node's models."""

    def __init__(self, models: Mapping[ModelName, Model]) -> None:
        self._models = models

    def most(self, model: ModelName) -> int:
        known = self._models.get(model)
        return max(UNLOADED, known.current.intake.crew.working) if known is not None else UNLOADED
