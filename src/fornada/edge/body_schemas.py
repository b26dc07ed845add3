"""Bodies of routes with a schema of their own: what /openapi.json says of them is what is checked."""

from collections.abc import Iterator, Mapping
from typing import Any

from fornada.core.errors import BadRequest
from fornada.edge.json_bodies import Fields, fields_of, value_of
from fornada.edge.schema_errors import describe
from fornada.edge.validation import compiled


class BodySchema:
    """The schema of one route's JSON body."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self._validator = compiled(schema)
        self._most = dict(_longest(schema))
        """Items of the lists at the top: told first, since explaining what else is wrong with a million of them takes seconds."""

    def fields(self, body: bytes) -> Fields:
        """The top level of a body. `null` is left out: clients write it for what their users left out. Raises BadRequest."""
        return {name: raw for name, raw in fields_of(body).items() if bytes(raw) != b"null"}

    def read(self, fields: Fields) -> dict[str, Any]:
        """Values of all fields. Raises BadRequest that names the place."""
        values = {name: value_of(raw) for name, raw in fields.items()}
        self.check(values)
        return values

    def check(self, values: dict[str, Any]) -> None:
        """Raises BadRequest that names the place."""
        for name, most in self._most.items():
            if isinstance(value := values.get(name), list) and len(value) > most:
                raise BadRequest(f"'/{name}': it has more than {most} items")
        try:
            if self._validator.is_valid(values):
                return
            complaint = describe(self._validator.iter_errors(values), self.schema)
        except ValueError:  # its own bound of nesting
            complaint = "the body is nested too deeply"
        raise BadRequest(complaint)


def _longest(schema: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Properties that are lists, and the most items that they may have."""
    for name, each in schema["properties"].items():
        for kind in (each, *each.get("anyOf", ())):
            if "maxItems" in kind:
                yield name, kind["maxItems"]
