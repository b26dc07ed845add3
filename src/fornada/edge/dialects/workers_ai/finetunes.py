"""`ai/finetunes`: adapters (LoRA) of the account (WORKERS_AI.md, 9).

    POST   …/finetunes                           {"model", "name"}, as JSON whatever its type says
    POST   …/finetunes/{id}/finetune-assets      a form with `file_name` and `file`, one file a call
    GET    …/finetunes, …/finetunes/public       lists
    DELETE …/finetunes/{id}                      ours: Cloudflare has no way back

Two things look odd and are what the clients' own types ask for (docs/decisions/0020): an upload that can't be taken is told by
`success: false` at 200, and cloudflare-python's list is one object.
"""

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

from fornada.core.errors import (
    BadRequest,
    DiskFull,
    ModelNotAllowed,
    TooLarge,
    TooManyFinetunes,
    UnknownFinetune,
    UnknownModel,
)
from fornada.core.finetunes import CONFIG, WEIGHTS, Finetune, FinetuneId, FinetunesPort
from fornada.core.keys import Role
from fornada.core.names import AccountId, ModelName, parse_reference
from fornada.core.ports import CatalogPort
from fornada.edge.auth import account_of
from fornada.edge.calls import Call, Operation, Parameter, Reply, Route, json_reply
from fornada.edge.envelope import envelope, enveloped
from fornada.edge.json_bodies import fields_of, value_of
from fornada.edge.multipart import read_views
from fornada.edge.problems import Style, problem

FORM_BYTES = 64 * 1024
"""What a form has around its file."""
MOST = 1000
_BASE = "/client/v4/accounts/{account}/ai/finetunes"
_ORDERS = {"name": "name", "model": "model", "created_at": "created", "modified_at": "modified"}
_NUMBER = re.compile(r"\d{1,9}(?:\.0*)?\Z")
"""The SDK's type for a count is a float."""
_FINETUNE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "model": {"type": "string"},
        "name": {"type": "string"},
        "description": {"type": "string"},
        "public": {"type": "boolean"},
        "created_at": {"type": "string", "format": "date-time"},
        "modified_at": {"type": "string", "format": "date-time"},
    },
    "required": ["id", "model", "name", "description", "public", "created_at", "modified_at"],
}
_WANTED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "model": {"type": "string", "minLength": 1},
        "name": {"type": "string", "minLength": 1, "maxLength": 128},
        "description": {"type": ["string", "null"], "maxLength": 2048},
        "public": {"type": ["boolean", "null"], "description": "true: every account of the node may use it"},
    },
    "required": ["model", "name"],
}
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "file_name": {"type": "string", "description": f"{CONFIG} or {WEIGHTS}"},
        "file": {"type": "string", "format": "binary"},
    },
    "required": ["file_name", "file"],
}
_TAKEN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "success": {"type": "boolean", "description": "false: the file wasn't taken; `errors` says why"},
        "result": {"type": "object"},
        "errors": {"type": "array", "items": {"type": "object"}},
        "messages": {"type": "array"},
    },
    "required": ["success", "errors", "messages"],
}
_LISTED: dict[str, Any] = {
    "description": "Flat. For cloudflare-python, whose type is one object: the newest with all of them in `finetunes`, where there are any",
    "anyOf": [{"type": "array", "items": _FINETUNE}, _FINETUNE],
}


def finetune_routes(*, finetunes: FinetunesPort, catalog: CatalogPort) -> list[Route]:
    """The routes of fine-tunes."""
    shelf = _Shelf(finetunes, catalog)
    create = Operation(
        "createFinetune",
        "Begin a fine-tune: its files follow",
        envelope(_FINETUNE),
        shelf.create,
        Role.DEPLOYER,
        takes={"application/json": _WANTED, "text/plain": _WANTED},
        errors=(BadRequest, ModelNotAllowed, TooManyFinetunes, DiskFull),
    )
    upload = Operation(
        "uploadFinetuneAsset",
        "Hand in one file of a fine-tune",
        _TAKEN,
        shelf.upload,
        Role.DEPLOYER,
        takes={"multipart/form-data": _FORM},
        errors=(BadRequest, TooLarge, DiskFull),
        body_limit=finetunes.most_bytes + FORM_BYTES,
    )
    public = Operation(
        "listPublicFinetunes",
        "Fine-tunes that every account may use",
        envelope({"type": "array", "items": _FINETUNE}),
        shelf.public,
        Role.USER,
        (
            Parameter("limit", "At most so many; 0: all", {"type": "number", "minimum": 0}),
            Parameter("offset", "Without the first ones", {"type": "number", "minimum": 0}),
            Parameter("orderBy", f"{', '.join(_ORDERS)}; the newest first where it is none of them"),
        ),
        errors=(BadRequest,),
    )
    return [
        Route(
            _BASE,
            Style.ENVELOPE,
            {
                "POST": create,
                "GET": Operation("listFinetunes", "The account's fine-tunes, the newest first", envelope(_LISTED), shelf.all, Role.USER),
            },
        ),
        Route(f"{_BASE}/public", Style.ENVELOPE, {"GET": public}),
        Route(f"{_BASE}/{{finetune}}/finetune-assets", Style.ENVELOPE, {"POST": upload}),
        Route(
            f"{_BASE}/{{finetune}}",
            Style.ENVELOPE,
            {
                "DELETE": Operation(
                    "deleteFinetune",
                    "Remove a fine-tune and its files",
                    envelope({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}),
                    shelf.remove,
                    Role.DEPLOYER,
                    errors=(UnknownFinetune,),
                )
            },
        ),
    ]


class _Shelf:
    """Handlers."""

    def __init__(self, finetunes: FinetunesPort, catalog: CatalogPort) -> None:
        self._finetunes = finetunes
        self._catalog = catalog

    async def create(self, call: Call) -> Reply:
        account = account_of(call.account)
        fields = fields_of(call.body.strip())
        given = {name: value_of(fields[name]) for name in _WANTED["properties"] if name in fields}
        for name in ("model", "name"):
            if given.get(name) is None:
                raise BadRequest(f"required properties at '/' are '{name}'")
        for name in ("model", "name", "description"):
            if not isinstance(given.get(name), str | None):
                raise BadRequest(f"Type mismatch of '/{name}', it must be a string")
        if not isinstance(given.get("public"), bool | None):
            raise BadRequest("Type mismatch of '/public', it must be true or false")
        made = self._finetunes.create(
            account,
            model=self._model(given["model"], account),
            name=given["name"],
            description=given.get("description") or "",
            public=bool(given.get("public")),
        )
        return json_reply(enveloped(_shown(made)))

    async def upload(self, call: Call) -> Reply:
        account = account_of(call.account)
        if call.facts.media_type != "multipart/form-data":
            raise BadRequest("send the file as multipart/form-data, with the fields 'file_name' and 'file'")
        # In a thread: a file of some hundred megabytes is looked through for the form's end.
        fields = await asyncio.to_thread(read_views, call.body, call.facts.content_type)
        file = fields.get("file")
        try:
            name = bytes(fields["file_name"]).decode()
        except (KeyError, UnicodeDecodeError):
            raise BadRequest("'file_name' is missing, or no text") from None
        if file is None:
            raise BadRequest("'file' is missing")
        try:
            taken = await self._finetunes.upload(FinetuneId(call.parameters["finetune"]), account, file=name, data=file)
        except (UnknownFinetune, BadRequest) as refusal:
            return Reply(body=problem(refusal, Style.ENVELOPE, call.trace_id).body)
        return json_reply(enveloped({**_shown(taken), "file_name": name}))

    async def all(self, call: Call) -> Reply:
        found = [_shown(each) for each in self._finetunes.all(account_of(call.account))]
        if found and call.facts.get(b"x-stainless-lang") == b"python":
            return json_reply(enveloped({**found[0], "finetunes": found}))
        return json_reply(enveloped(found))

    async def public(self, call: Call) -> Reply:
        account_of(call.account)
        limit, offset = (_count(call.query.get(name, ""), name) for name in ("limit", "offset"))
        found = self._finetunes.public()
        order = _ORDERS.get(call.query.get("orderBy", ""))
        if order is not None:
            found = sorted(found, key=lambda each: str(getattr(each, order)) if order in ("name", "model") else -getattr(each, order))
        shown = found[offset : offset + (limit or MOST)]
        info = {"count": len(shown), "total_count": len(found)}
        return json_reply(enveloped([_shown(each) for each in shown], result_info=info))

    async def remove(self, call: Call) -> Reply:
        id = FinetuneId(call.parameters["finetune"])
        await self._finetunes.remove(id, account_of(call.account))
        return json_reply(enveloped({"id": id}))

    def _model(self, named: str, account: AccountId) -> ModelName:
        """The catalogue's own name of it. One that isn't there may come later."""
        reference = parse_reference(named)
        try:
            return self._catalog.resolve(reference, account).entry.name
        except UnknownModel:
            return ModelName(reference.name)


def _count(text: str, name: str) -> int:
    if not text:
        return 0
    if not _NUMBER.match(text):
        raise BadRequest(f"'{name}' must be a whole number")
    return int(float(text))


def _shown(finetune: Finetune) -> dict[str, Any]:
    return {
        "id": finetune.id,
        "model": finetune.model,
        "name": finetune.name,
        "description": finetune.description,
        "public": finetune.public,
        "created_at": _time(finetune.created),
        "modified_at": _time(finetune.modified),
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
