"""JSON mode: generated text that must be a JSON object, or what a schema says (WORKERS_AI.md, 5.3).

    response_format {"type": "json_object"}                                an object
    response_format {"type": "json_schema", "json_schema": …}, guided_json what the schema says: bare, or in OpenAI's {name, schema, strict}

An engine with grammars holds the model to it; what comes out is checked here all the same, for models that only try. A schema that can't
be applied here is left to the engine.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from fornada.core.errors import BadRequest, InvalidSpec, JsonModeUnmet
from fornada.edge.validation import Shared

_KINDS = ("json_object", "json_schema")


class JsonMode:
    """What an answer must be."""

    __slots__ = ("_schema",)

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    def value(self, text: str, finish: Any) -> Any:
        """The value that the text is. Raises JsonModeUnmet. `finish`: why the model ended."""
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            why = "the answer reached max_tokens before its JSON ended" if finish == "length" else "the model wrote something else"
            raise _unmet(why) from None
        return self.checked(value)

    def check_completion(self, completion: Any) -> None:
        """The answers of a chat.completion, where it is one, that came to their end by themselves. Raises JsonModeUnmet."""
        for choice in (completion.get("choices") or ()) if isinstance(completion, dict) else ():
            message = choice.get("message") or {}
            if choice.get("finish_reason") == "stop" and not message.get("tool_calls") and not message.get("refusal"):
                self.value(message.get("content") or "", "stop")

    def checked(self, value: Any) -> Any:
        """`value`, which a model answered as such. Raises JsonModeUnmet."""
        try:
            Shared(self._schema).check(value)
        except BadRequest as error:
            raise _unmet(f"the answer isn't what the schema says: {error}") from None
        except InvalidSpec:
            pass
        return value


def json_mode(given: Mapping[str, Any]) -> JsonMode | None:
    """What the decoded input asks for; `ai/run` then answers the value and not its text."""
    format = given.get("response_format")
    if not isinstance(format, dict) or (kind := format.get("type")) not in _KINDS:
        guided = given.get("guided_json")
        return JsonMode(guided) if isinstance(guided, dict) else None
    # Some clients give json_object a schema.
    wanted = format.get("json_schema", format.get("schema"))
    return JsonMode(bare(wanted) if isinstance(wanted, dict) else {"type": "object"} if kind == "json_object" else {})


def promised(given: Mapping[str, Any]) -> JsonMode | None:
    """The schema that a whole chat.completion is checked by: OpenAI's callers read its text without looking, unless they say that it isn't
    `strict`. JSON without a schema is as good as the model is."""
    format = given.get("response_format")
    wanted = format.get("json_schema") if isinstance(format, dict) and format.get("type") == "json_schema" else None
    return JsonMode(bare(wanted)) if isinstance(wanted, dict) and wanted.get("strict") is not False else None


def bare(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema out of OpenAI's envelope, or what is one already."""
    inner = schema.get("schema")
    return inner if isinstance(inner, dict) and "type" not in schema and "properties" not in schema else schema


def _unmet(why: str) -> JsonModeUnmet:
    return JsonModeUnmet(f"JSON Mode couldn't be met: {why}")
