"""The node's own API: models, devices, jobs, events, health, metrics, and the description of all of it.

In: Calls.
Out: JSON, event streams, two small pages.
May import: `edge` modules that are not dialects, `telemetry`, `core`.
"""

from collections.abc import Callable, Sequence

from fornada.core.jobs import JobsPort
from fornada.core.ports import CatalogPort, Clock, OperationsPort
from fornada.core.settings import ServerSettings
from fornada.core.usage import UsagePort
from fornada.edge.calls import Route
from fornada.edge.dialects.admin.deploy import deploy_routes
from fornada.edge.dialects.admin.jobs import job_routes
from fornada.edge.dialects.admin.models import model_routes
from fornada.edge.dialects.admin.node import node_routes
from fornada.edge.dialects.admin.pages import page_routes
from fornada.edge.dialects.admin.prune import prune_routes
from fornada.edge.dialects.admin.usage import usage_routes
from fornada.edge.observer import Observer

__all__ = ["routes"]


def routes(
    *,
    catalog: CatalogPort,
    operations: OperationsPort,
    jobs: JobsPort,
    settings: ServerSettings,
    observer: Observer,
    clock: Clock,
    draining: Callable[[], bool],
    usage: UsagePort,
    others: Sequence[Route],
) -> list[Route]:
    """All routes of the dialect. `others`: those of the other dialects, for the description."""
    own = [
        *model_routes(
            catalog=catalog,
            operations=operations,
            clock=clock,
            more=deploy_routes(catalog=catalog, operations=operations, settings=settings),
        ),
        *node_routes(operations=operations, observer=observer, draining=draining),
        *job_routes(jobs=jobs),
        *prune_routes(catalog=catalog),
        *usage_routes(usage=usage),
    ]
    return [*own, *page_routes([*others, *own])]
