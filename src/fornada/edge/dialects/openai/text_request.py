"""Requests for chats and texts in OpenAI's words, as the input of text generation that every runner knows.

    max_completion_tokens      max_tokens, unless that is there too
    null                       absent
    content: null, parts       a text where all parts are texts, so that models need to know one form alone
    prompt, for a text         with `raw`: no chat template
    model, options             taken off: they are the platform's

All else, named here or not, goes through as it is; the task's schema has checked it before a model is loaded for it.
"""

from typing import Any, NamedTuple

import msgspec

from fornada.core.errors import BadRequest
from fornada.edge.json_bodies import Fields, encode, is_true, value_of
from fornada.edge.json_mode import JsonMode, promised
from fornada.edge.platform_options import NO_OPTIONS, read_options
from fornada.edge.text_messages import made_plain
from fornada.edge.text_schemas import CHAT_IN, COMPLETION_IN
from fornada.edge.validation import Contract, Shared

MOST_PROMPTS = 128
MANY_PROMPTS = ("gguf",)
"""Engines that take a list of prompts."""
_TRUE = msgspec.Raw(b"true")
_CHAT, _COMPLETION = Shared(CHAT_IN), Shared(COMPLETION_IN)


class _Prepared(NamedTuple):
    """What came beside the model's input."""

    reject_if_busy: bool
    renamed: bool
    """`max_tokens` came under its newer name."""


class TextRequest(NamedTuple):
    """A request, ready for the runner."""

    body: bytes
    stream: bool
    include_usage: bool
    """The stream ends with an event of token counts."""
    reject_if_busy: bool
    tuned: bool = False
    """It names a fine-tune (`lora`)."""
    json_mode: JsonMode | None = None
    """What a whole answer to a conversation is checked by."""


def read_chat(fields: Fields, contract: Contract) -> TextRequest:
    """A conversation. Raises BadRequest with the field's name."""
    prepared = _prepared(fields)
    if "messages" not in fields:
        raise BadRequest("missing the field 'messages'")
    fields.pop("prompt", None)
    values = {name: value_of(raw) for name, raw in fields.items()}
    _check(_rules(contract, _CHAT), values, prepared)
    if contract.drop_nulls and made_plain(values["messages"]):
        fields["messages"] = msgspec.Raw(msgspec.json.encode(values["messages"]))
    return _request(fields, values, prepared.reject_if_busy, contract)._replace(json_mode=promised(values))


def read_text(fields: Fields, contract: Contract, engine: str) -> TextRequest:
    """A text to go on from. Raises BadRequest with the field's name."""
    prepared = _prepared(fields)
    if "prompt" not in fields:
        raise BadRequest("missing the field 'prompt'")
    fields.pop("messages", None)
    values = {name: value_of(raw) for name, raw in fields.items()}
    prompts = _prompts(values["prompt"], engine)
    _check(_rules(contract, _COMPLETION), {**values, "prompt": prompts[0]}, prepared)
    if (values.get("best_of") or 1) > (values.get("n") or 1):
        raise BadRequest("'best_of' can't be more than 'n': each answer that is made is given")
    if len(prompts) == 1:
        fields["prompt"] = msgspec.Raw(msgspec.json.encode(prompts[0]))
    fields["raw"] = _TRUE
    return _request(fields, values, prepared.reject_if_busy, contract)


def _rules(contract: Contract, door: Shared) -> Contract | Shared:
    """A model with a schema of its own is asked by that; else the door's is what OpenAI's callers expect."""
    return door if contract.drop_nulls else contract


def _check(rules: Contract | Shared, values: dict[str, Any], prepared: _Prepared) -> None:
    """Raises BadRequest with the name that the caller knows, too."""
    try:
        rules.check(values)
    except BadRequest as error:
        if prepared.renamed and "max_tokens" in error.message:
            raise BadRequest(f"{error.message}; it came as 'max_completion_tokens'") from None
        raise


def _prepared(fields: Fields) -> _Prepared:
    """Takes off what is not the model's."""
    options = read_options(fields.pop("options")) if "options" in fields else NO_OPTIONS
    del fields["model"]
    for name in [name for name, raw in fields.items() if bytes(raw) == b"null"]:
        del fields[name]
    renamed = "max_completion_tokens" in fields and "max_tokens" not in fields
    if renamed:
        fields["max_tokens"] = fields.pop("max_completion_tokens")
    return _Prepared(options.reject_if_busy, renamed)


def _request(fields: Fields, values: dict[str, Any], reject_if_busy: bool, contract: Contract) -> TextRequest:
    wanted = values.get("stream_options")
    if wanted is not None and not isinstance(wanted, dict):
        raise BadRequest("'stream_options' must be an object")
    return TextRequest(
        encode(fields),
        "stream" in fields and is_true(fields["stream"]),
        isinstance(wanted, dict) and wanted.get("include_usage") is True,
        reject_if_busy,
        contract.drop_nulls and "lora" in fields,
    )


def _prompts(given: Any, engine: str) -> list[str]:
    prompts = [given] if isinstance(given, str) else given
    if not isinstance(prompts, list) or not prompts:
        raise BadRequest("'prompt' must be a text, or a list of texts")
    if not all(isinstance(prompt, str) for prompt in prompts):
        raise BadRequest("'prompt' holds tokens: this node takes texts, since each model has a tokenizer of its own")
    if not all(prompts):
        raise BadRequest("'prompt' is empty, or holds an empty text")
    if len(prompts) > (MOST_PROMPTS if engine in MANY_PROMPTS else 1):
        raise BadRequest(
            f"'prompt' may be a list of {f'at most {MOST_PROMPTS} texts' if engine in MANY_PROMPTS else 'one text alone'} here"
        )
    return prompts
