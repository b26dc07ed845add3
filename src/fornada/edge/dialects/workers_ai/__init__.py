"""The Workers AI API under /client/v4/accounts/{account}/ai.

In: `ai/run` as Exchanges, the catalogue's routes as Calls.
Out: requests for the InferencePort; envelopes, event streams, raw bodies.
May import: `edge` modules that are not dialects, `telemetry`, `core`.
"""

from collections.abc import Callable

from fornada.core.finetunes import FinetunesPort
from fornada.core.ports import CatalogPort
from fornada.edge.calls import Route
from fornada.edge.dialects.workers_ai.catalog import catalog_routes
from fornada.edge.dialects.workers_ai.finetunes import finetune_routes
from fornada.edge.dialects.workers_ai.markdown import Converter, markdown_routes
from fornada.edge.dialects.workers_ai.realtime import RealtimeDoor
from fornada.edge.dialects.workers_ai.run import RunDoor
from fornada.edge.validation import Contracts

__all__ = ["Converter", "RealtimeDoor", "RunDoor", "routes"]


def routes(
    *, catalog: CatalogPort, contracts: Contracts, finetunes: FinetunesPort, converter: Converter, wall: Callable[[], float]
) -> list[Route]:
    """All routes of the dialect, the hot ones as descriptions."""
    return [
        *catalog_routes(catalog=catalog, contracts=contracts, wall=wall),
        *finetune_routes(finetunes=finetunes, catalog=catalog),
        *markdown_routes(converter),
    ]
