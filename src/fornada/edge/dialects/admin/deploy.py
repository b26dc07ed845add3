"""`PUT` and `DELETE` of a model: bundles come in, models go."""

from fornada.core.errors import BadRequest, Conflict, DiskFull, InvalidSpec, ModelNotAllowed, TooLarge, UnknownModel
from fornada.core.keys import Role
from fornada.core.names import LABELS, parse_reference, refuse_traversal
from fornada.core.ports import CatalogPort, OperationsPort
from fornada.core.resources import parse_size
from fornada.core.settings import ServerSettings
from fornada.edge.calls import Call, Operation, Parameter, Reply, json_reply
from fornada.edge.dialects.admin import descriptions as d


def deploy_routes(*, catalog: CatalogPort, operations: OperationsPort, settings: ServerSettings) -> dict[str, Operation]:
    """The methods of a model's own path that change the catalogue."""
    deploy = _Deploy(catalog, operations)
    return {
        "PUT": Operation(
            "deployModel",
            "Deploy a bundle (tar, gzip) under this name; answers when its dependencies are locked",
            d.DEPLOYED,
            deploy.put,
            Role.DEPLOYER,
            (Parameter("label", "What the new version becomes", {"enum": sorted(LABELS), "default": "stable"}),),
            takes={"application/gzip": {"type": "string", "format": "binary"}},
            errors=(BadRequest, InvalidSpec, ModelNotAllowed, TooLarge, DiskFull),
            body_limit=parse_size(settings.max_bundle),
        ),
        "DELETE": Operation(
            "removeModel",
            "Remove a model, or one of its versions",
            d.REMOVED,
            deploy.delete,
            Role.DEPLOYER,
            errors=(UnknownModel, Conflict),
        ),
    }


class _Deploy:
    """Handlers."""

    def __init__(self, catalog: CatalogPort, operations: OperationsPort) -> None:
        self._catalog = catalog
        self._operations = operations

    async def put(self, call: Call) -> Reply:
        name = call.parameters["name"]
        refuse_traversal(name)
        label = call.query.get("label") or "stable"
        if label not in LABELS:
            raise BadRequest(f"'label' must be one of {', '.join(sorted(LABELS))}")
        if not call.body:
            raise BadRequest("the body is empty; send the bundle, a tar with gzip")
        version = await self._catalog.deploy(call.body, name=name, account=call.account, label=label)
        state = self._operations.view(version.model).state
        return json_reply({"name": version.model, "version": version.digest, "state": state})

    async def delete(self, call: Call) -> Reply:
        named = call.parameters["name"]
        if call.query:  # somebody who meant one version must not lose all of them
            raise BadRequest("DELETE takes no query; name one version as 'name:digest' in the path")
        reference = parse_reference(named)
        try:
            await self._catalog.remove(reference, account=call.sees)
        except UnknownModel as refusal:
            raise UnknownModel(f"No such model {named}", nearest=refusal.nearest) from None
        return json_reply({"name": reference.name, "removed": True})
