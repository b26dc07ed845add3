"""`GET /v1/models` and `GET /v1/models/{id}`."""

from datetime import UTC, datetime
from typing import Any

from fornada.core.errors import BadRequest, UnknownModel
from fornada.core.files import FilesPort
from fornada.core.jobs import JobsPort
from fornada.core.keys import Role
from fornada.core.names import parse_reference
from fornada.core.ports import CatalogPort, Clock, Entry
from fornada.core.responses import ResponseStore
from fornada.edge.auth import account_of
from fornada.edge.calls import Call, Operation, Reply, Route, json_reply
from fornada.edge.catalog_entries import author_of
from fornada.edge.dialects.openai.batches import batch_routes
from fornada.edge.dialects.openai.descriptions import CHAT, COMPLETE, TRANSCRIBE, TRANSLATE
from fornada.edge.dialects.openai.embeddings import EMBED
from fornada.edge.dialects.openai.files import file_routes
from fornada.edge.dialects.openai.images import DRAW
from fornada.edge.dialects.openai.responses.descriptions import RESPOND
from fornada.edge.dialects.openai.responses.kept import response_routes
from fornada.edge.dialects.openai.speech import SPEAK
from fornada.edge.problems import Style
from fornada.edge.version_numbers import VersionStatus

_BASES = ("/v1", "/client/v4/accounts/{account}/ai/v1")
_HOT = {
    "/embeddings": EMBED,
    "/chat/completions": CHAT,
    "/completions": COMPLETE,
    "/audio/transcriptions": TRANSCRIBE,
    "/responses": RESPOND,
    "/audio/translations": TRANSLATE,
    "/audio/speech": SPEAK,
    "/images/generations": DRAW,
}
_MODEL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "model"},
        "created": {"type": "integer"},
        "owned_by": {"type": "string"},
        **{name: {"type": "string", "description": "Anthropic's"} for name in ("type", "display_name", "created_at", "lifecycle")},
    },
    "required": ["id", "object", "created", "owned_by"],
}
_ONE: dict[str, Any] = {
    **_MODEL,
    "properties": {**_MODEL["properties"], "model_version_status": {"type": "array", "description": "TensorFlow Serving's"}},
}
_MODELS = {
    "type": "object",
    "properties": {
        "object": {"const": "list"},
        "data": {"type": "array", "items": _MODEL},
        "has_more": {"const": False},
        "first_id": {"type": ["string", "null"]},
        "last_id": {"type": ["string", "null"]},
    },
    "required": ["object", "data"],
}


def routes(
    *, catalog: CatalogPort, files: FilesPort, jobs: JobsPort, responses: ResponseStore, clock: Clock, status: VersionStatus
) -> list[Route]:
    """All routes of the dialect, the hot ones as descriptions. `status`: what TensorFlow Serving's clients look for in a model's object."""
    lists = _Models(catalog, status)
    found: list[Route] = []
    for number, base in enumerate(_BASES):
        suffix = "" if number == 0 else "OfAccount"
        found += [
            *[Route(base + path, Style.SUPERSET, {"POST": each.named(each.id + suffix)}) for path, each in _HOT.items()],
            Route(
                f"{base}/models",
                Style.SUPERSET,
                {"GET": Operation(f"listOpenaiModels{suffix}", "The catalogue", _MODELS, lists.all, Role.USER)},
            ),
            Route(
                f"{base}/models/{{id:path}}",
                Style.SUPERSET,
                {"GET": Operation(f"getOpenaiModel{suffix}", "One model", _ONE, lists.one, Role.USER, errors=(BadRequest, UnknownModel))},
            ),
            *file_routes(base, suffix, files=files, jobs=jobs),
            *batch_routes(base, suffix, files=files, jobs=jobs, catalog=catalog),
            *response_routes(base, suffix, responses=responses, clock=clock),
        ]
    return found


class _Models:
    """Handlers of the lists."""

    def __init__(self, catalog: CatalogPort, status: VersionStatus) -> None:
        self._catalog = catalog
        self._status = status

    async def all(self, call: Call) -> Reply:
        entries = self._catalog.entries(account_of(call.account))
        data = [_model(entry.name, entry) for entry in entries]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
        return json_reply({"object": "list", "data": data, "has_more": False, **ends})

    async def one(self, call: Call) -> Reply:
        name = call.parameters["id"].rstrip("/")
        try:
            resolved = self._catalog.resolve(parse_reference(name), account_of(call.account))
        except UnknownModel as refusal:
            raise UnknownModel(f"The model '{name}' does not exist", nearest=refusal.nearest) from None
        return json_reply({**_model(name, resolved.entry), "model_version_status": self._status(resolved.entry)})


def _model(id: str, entry: Entry) -> dict[str, Any]:
    """What OpenAI's clients read of a model, and what Anthropic's do, who ask at the same address."""
    created = entry.stable.created
    return {
        "id": id,
        "object": "model",
        "created": int(created),
        "owned_by": author_of(entry.name),
        "type": "model",
        "display_name": id,
        "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
    }
