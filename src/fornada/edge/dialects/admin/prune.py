"""`POST /api/v1/prune`: what no registered model needs any more leaves the disk."""

from fornada.core.keys import Role
from fornada.core.ports import CatalogPort
from fornada.edge.calls import Call, Operation, Reply, Route, json_reply
from fornada.edge.dialects.admin import descriptions as d
from fornada.edge.problems import Style


def prune_routes(*, catalog: CatalogPort) -> list[Route]:
    async def prune(call: Call) -> Reply:
        return json_reply(await catalog.prune())

    operation = Operation(
        "prune", "Delete environments, artifacts and bundles that no model needs; answers when it is done", d.PRUNED, prune, Role.ADMIN
    )
    return [Route("/api/v1/prune", Style.SUPERSET, {"POST": operation})]
