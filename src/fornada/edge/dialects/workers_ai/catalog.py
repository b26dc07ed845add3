"""`models/search`, `models/schema`, `authors/search`, `tasks/search` (WORKERS_AI.md, 8)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fornada.core.errors import BadRequest, UnknownModel
from fornada.core.keys import Role
from fornada.core.names import parse_reference
from fornada.core.ports import CatalogPort, Entry
from fornada.edge.auth import account_of
from fornada.edge.calls import Call, Operation, Parameter, Reply, Route, json_reply
from fornada.edge.catalog_entries import author_of, names_of
from fornada.edge.dialects.workers_ai import descriptions as d
from fornada.edge.dialects.workers_ai.catalog_items import SOURCE, is_deprecated, is_experimental, item, openrouter_item
from fornada.edge.dialects.workers_ai.run import unknown
from fornada.edge.envelope import enveloped
from fornada.edge.problems import Style
from fornada.edge.tasks import TASKS, Schema, named_id, task_of
from fornada.edge.validation import Contracts

USUAL_PAGE, LONGEST_PAGE = 50, 1000
MOST_PAGES = 10**9
_BASE = "/client/v4/accounts/{account}/ai"


def catalog_routes(*, catalog: CatalogPort, contracts: Contracts, wall: Callable[[], float]) -> list[Route]:
    """The lists, and the hot routes as descriptions."""
    lists = _Lists(catalog, contracts, wall)
    return [
        Route(f"{_BASE}/run/{{model:path}}", Style.ENVELOPE, {"POST": d.RUN, "GET": d.TALK}),
        Route(f"{_BASE}/run", Style.ENVELOPE, {"POST": d.RUN_UNIVERSAL}),
        Route(
            f"{_BASE}/models/search",
            Style.ENVELOPE,
            {"GET": Operation("searchModels", "The catalogue", d.MODELS, lists.models, Role.USER, d.MODELS_QUERY, errors=(BadRequest,))},
        ),
        Route(
            f"{_BASE}/models/schema",
            Style.ENVELOPE,
            {
                "GET": Operation(
                    "getModelSchema",
                    "Input and output of a model",
                    d.SCHEMA,
                    lists.schema,
                    Role.USER,
                    (Parameter("model", "The model's name", required=True),),
                    errors=(BadRequest, UnknownModel),
                )
            },
        ),
        Route(
            f"{_BASE}/authors/search",
            Style.ENVELOPE,
            {"GET": Operation("searchAuthors", "Who the models are by", d.AUTHORS, lists.authors, Role.USER)},
        ),
        Route(
            f"{_BASE}/tasks/search", Style.ENVELOPE, {"GET": Operation("searchTasks", "Kinds of models", d.TASKS, lists.tasks, Role.USER)}
        ),
    ]


class _Lists:
    """Handlers of the lists."""

    def __init__(self, catalog: CatalogPort, contracts: Contracts, wall: Callable[[], float]) -> None:
        self._catalog = catalog
        self._contracts = contracts
        self._wall = wall

    async def models(self, call: Call) -> Reply:
        query = call.query
        # The SDK sends 0 where its user left a number out.
        page = _number(query, "page", most=MOST_PAGES) or 1
        per_page = _number(query, "per_page", most=LONGEST_PAGE) or USUAL_PAGE
        form = _form_of(query)
        experimental, deprecated = not _flag(query, "hide_experimental"), _flag(query, "include_deprecated")
        now = self._wall()
        found = [
            entry
            for entry in self._entries(call)
            if (experimental or not is_experimental(entry.stable.spec))
            and (deprecated or not is_deprecated(entry.stable.spec, now=now))
            and _matches(entry, query)
        ]
        # The end must be an empty page: clients ask for further ones until they get one.
        shown = found[(page - 1) * per_page : page * per_page]
        info = {
            "page": page,
            "per_page": per_page,
            "count": len(shown),
            "total_count": len(found),
            "total_pages": -(-len(found) // per_page),
        }
        return json_reply(enveloped([form(entry) for entry in shown], result_info=info))

    async def schema(self, call: Call) -> Reply:
        account = account_of(call.account)
        name = call.query.get("model", "")
        if not name:
            raise BadRequest("required query parameters are 'model'")
        try:
            resolved = self._catalog.resolve(parse_reference(name), account)
        except UnknownModel as refusal:
            raise unknown(name, refusal) from None
        contract = self._contracts.of(resolved)
        result = {"input": _shown(contract.input, "inputs", name), "output": _shown(contract.output, "output", name)}
        return json_reply(enveloped(result))

    async def authors(self, call: Call) -> Reply:
        counts: dict[str, int] = {}
        for entry in self._entries(call):
            author = author_of(entry.name)
            counts[author] = counts.get(author, 0) + 1
        authors = [{"id": named_id("author", name), "name": name, "models": count} for name, count in sorted(counts.items())]
        return json_reply(enveloped(authors))

    async def tasks(self, call: Call) -> Reply:
        account_of(call.account)
        known = {task.slug: task for task in TASKS}
        for entry in self._entries(call):
            slug = entry.stable.spec.task
            known.setdefault(slug, task_of(slug))
        return json_reply(enveloped([task.public() for task in known.values()]))

    def _entries(self, call: Call) -> Sequence[Entry]:
        return self._catalog.entries(account_of(call.account))


def _number(query: Mapping[str, str], name: str, *, most: int) -> int:
    text = query.get(name, "").strip() or "0"
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or int(text) > most:
        raise BadRequest(f"'{name}' must be a whole number from 1 to {most}")
    return int(text)


def _form_of(query: Mapping[str, str]) -> Callable[[Entry], dict[str, Any]]:
    named = query.get("format", "").strip()
    if named not in ("", "openrouter"):
        raise BadRequest("'format' must be openrouter, or be left out")
    return openrouter_item if named else item


def _flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "").strip().lower()
    if text not in ("", "true", "false", "1", "0"):
        raise BadRequest(f"'{name}' must be true or false")
    return text in ("true", "1")


def _matches(entry: Entry, query: Mapping[str, str]) -> bool:
    spec = entry.stable.spec
    if wanted := query.get("search", "").casefold():
        if not any(wanted in text.casefold() for text in (*names_of(entry), spec.description)):
            return False
    if wanted := query.get("task", "").casefold():
        task = task_of(spec.task)
        if wanted not in (task.name.casefold(), task.id, task.slug):
            return False
    if wanted := query.get("author", "").casefold():
        if not any(wanted == author_of(name).casefold() for name in names_of(entry)):
            return False
    source = query.get("source", "").strip()
    return source in ("", str(SOURCE))


def _shown(schema: Schema, what: str, name: str) -> dict[str, Any]:
    """A schema with the three words that Cloudflare's SDK wants to find. They say nothing that the schema doesn't."""
    shown = dict(schema)
    shown.setdefault("description", f"The {what} of {name}")
    if isinstance(shown.get("type"), str) or not shown.keys() & {"anyOf", "oneOf", "allOf", "$ref", "enum", "const", "type"}:
        shown.setdefault("type", "object")
    shown.setdefault("additionalProperties", True)
    return shown
