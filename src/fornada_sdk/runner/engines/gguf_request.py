"""From the Workers AI or OpenAI input of text generation to what llama.cpp takes.

    messages, prompt, raw                    one of the first two; `prompt` with `raw` may be a list of texts
    max_tokens, max_completion_tokens        default 256
    temperature, top_p, top_k, min_p, seed, repetition_penalty, frequency_penalty, presence_penalty, stop, logit_bias
    response_format, guided_json             JSON mode: any JSON object, or a schema, bare or in OpenAI's envelope
    tools, tool_choice, parallel_tool_calls  both styles
    n, logprobs, top_logprobs, echo, chat_template_kwargs, reasoning_effort
    lora                                     {"finetune": id of an adapter of this model}

Only what is named here reaches llama.cpp, whose own parameters include file names and slots. Unknown fields are let through unread, as
everywhere in the API; fields that would change the answer and can't be served (pictures) are refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fornada_sdk.api import BadRequest
from fornada_sdk.runner.engines.gguf_header import Header
from fornada_sdk.runner.engines.gguf_messages import read_messages
from fornada_sdk.runner.engines.gguf_schema import checked
from fornada_sdk.runner.engines.gguf_tools import Tools, read_tools

DEFAULT_TOKENS = 256
DEFAULT_TEMPERATURE = 0.6
MOST_CHOICES = 128
MOST_STOPS = 16
MOST_BIASES = 1024
RANDOM_SEED = 0xFFFFFFFF
"""What llama.cpp reads as "no seed"."""
_UNSERVED = ("image", "images", "audio", "input_audio", "suffix")


class Asked(NamedTuple):
    """A request, checked."""

    chat: bool
    """Through the chat template; else raw text."""
    bodies: list[dict[str, Any]]
    """What llama.cpp gets: one for each prompt."""
    n: int
    """Answers to each of them."""
    seed: int | None
    tools: Tools | None
    """Where the engine itself has to tell the model of tools, and read calls out of its answer."""
    echo: bool
    top_logprobs: int | None
    """None: no log probabilities."""
    lora: str = ""
    """Id of the adapter to apply; empty: none."""


def read_request(value: Any, header: Header) -> Asked:
    """Raises BadRequest with the field's name."""
    if not isinstance(value, dict):
        raise BadRequest('the input must be an object with "messages" or "prompt"')
    given = {name: each for name, each in value.items() if each is not None}
    for name in _UNSERVED:
        if given.get(name):
            raise BadRequest(f'"{name}" can\'t be served: this model reads text alone, as it was trained')
    raw = _flag(given, "raw")
    messages, prompts = _conversation(given, raw)
    chat = messages is not None
    body = _parameters(given)
    wanted = _schema(given)
    tools = read_tools(given) if chat else None
    if tools is not None and wanted is not None and tools.force:
        raise BadRequest('"response_format" and a forced "tool_choice" exclude each other')
    top_logprobs = _logprobs(given, chat, body)
    emulated = None
    if messages is not None:
        if tools is not None:
            calls = checked(tools.schema(), "tools")
            if header.shows_tools:
                body.update(tools.native())
            else:
                emulated = tools
                messages = tools.told(messages)
                wanted = calls if tools.force else wanted
        if not header.shows_tools:
            messages = Tools.spelled_out(messages)
        if more := _template_words(given):
            body["chat_template_kwargs"] = more
        body["messages"] = messages
        body["stream_options"] = {"include_usage": True}
        if wanted is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": wanted}}
    elif wanted is not None:
        body["json_schema"] = wanted
    seed = _integer(given, "seed")
    if seed is not None:
        # What is left of an earlier prompt is read in other steps than a new one, and sums come out a little differently.
        body["cache_prompt"] = False
    return Asked(
        chat=chat,
        bodies=[body] if chat else [{**body, "prompt": prompt} for prompt in prompts],
        n=_integer(given, "n", least=1, most=MOST_CHOICES) or 1,
        seed=seed,
        tools=emulated,
        echo=not chat and _flag(given, "echo"),
        top_logprobs=top_logprobs,
        lora=_lora(given),
    )


def seed_of(seed: int, number: int) -> int:
    """The seed of the answer with this number."""
    return (seed + number) % RANDOM_SEED


def _lora(given: dict[str, Any]) -> str:
    """The id in {"finetune": id}, which is what the edge makes of the name that a caller gives. Where a caller's own word comes as far
    as here, nobody has looked whose adapter it names."""
    value = given.get("lora")
    if value is None:
        return ""
    id = value.get("finetune") if isinstance(value, dict) else None
    if not isinstance(id, str):
        raise BadRequest('"lora" isn\'t served on this way: ai/run, /v1/chat/completions and /v1/completions take it')
    return id


def _conversation(given: dict[str, Any], raw: bool) -> tuple[list[dict[str, Any]] | None, list[str]]:
    """Messages for the template, or texts to go on from."""
    prompt = given.get("prompt")
    if "messages" in given:
        if prompt is not None:
            raise BadRequest('"messages" and "prompt" exclude each other')
        return read_messages(given["messages"]), []
    prompts = [prompt] if isinstance(prompt, str) else prompt
    if not isinstance(prompts, list) or not prompts or not all(isinstance(each, str) for each in prompts):
        raise BadRequest('the input must have "messages", a list, or "prompt", a text')
    if not all(prompts):
        raise BadRequest('"prompt" must have at least one character')
    if len(prompts) > MOST_CHOICES or (len(prompts) > 1 and not raw):
        raise BadRequest(f'"prompt" may be a list of up to {MOST_CHOICES} texts with "raw", and else must be one text')
    return (None, prompts) if raw else ([{"role": "user", "content": prompts[0]}], [])


def _template_words(given: dict[str, Any]) -> dict[str, Any]:
    """What the chat template is told besides: templates that don't know a word pass over it."""
    effort, words = given.get("reasoning_effort"), given.get("chat_template_kwargs")
    found: dict[str, Any] = {}
    if isinstance(effort, str):
        found["enable_thinking"] = effort != "none"
        if effort != "none":
            found["reasoning_effort"] = effort
    return {**found, **words} if isinstance(words, dict) else found


def _parameters(given: dict[str, Any]) -> dict[str, Any]:
    tokens = _integer(given, "max_tokens", least=1)
    if tokens is None:
        tokens = _integer(given, "max_completion_tokens", least=1)
    temperature = _number(given, "temperature", 0, 5)
    body: dict[str, Any] = {
        "max_tokens": DEFAULT_TOKENS if tokens is None else min(tokens, 1 << 30),
        "temperature": DEFAULT_TEMPERATURE if temperature is None else temperature,
    }
    for name, theirs, least, most in (
        ("top_p", "top_p", 0, 2),
        ("min_p", "min_p", 0, 1),
        ("repetition_penalty", "repeat_penalty", 0, 2),
        ("frequency_penalty", "frequency_penalty", -2, 2),
        ("presence_penalty", "presence_penalty", -2, 2),
    ):
        number = _number(given, name, least, most)
        if number is not None:
            body[theirs] = number
    # The contract allows 0, which would divide by nothing: it means what 1 means, no penalty.
    body["repeat_penalty"] = body.get("repeat_penalty") or 1.0
    top_k = _integer(given, "top_k", least=-1, most=1 << 30)
    if top_k is not None:
        body["top_k"] = max(top_k, 0)
    body["stop"] = _stops(given)
    bias = given.get("logit_bias")
    if bias is not None:
        body["logit_bias"] = _bias(bias)
    return body


def _stops(given: dict[str, Any]) -> list[str]:
    stops = given.get("stop", [])
    stops = [stops] if isinstance(stops, str) else stops
    if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(isinstance(stop, str) for stop in stops):
        raise BadRequest(f'"stop" must be a text or a list of up to {MOST_STOPS} texts')
    return [stop for stop in stops if stop]


def _bias(bias: Any) -> dict[str, float]:
    if not isinstance(bias, dict) or len(bias) > MOST_BIASES:
        raise BadRequest(f'"logit_bias" must be an object of up to {MOST_BIASES} tokens')
    for token, value in bias.items():
        if not token.isdecimal() or isinstance(value, bool) or not isinstance(value, (int, float)) or not -100 <= value <= 100:
            raise BadRequest('"logit_bias" must have numbers of tokens as names, and values from -100 to 100')
    return bias


def _logprobs(given: dict[str, Any], chat: bool, body: dict[str, Any]) -> int | None:
    wanted = given.get("logprobs")
    if chat:
        if not _flag(given, "logprobs"):
            return None
        count = _integer(given, "top_logprobs", least=0, most=20) or 0
        body["logprobs"], body["top_logprobs"] = True, count
        return count
    if wanted is None or wanted is False:
        return None
    count = 0 if wanted is True else _integer(given, "logprobs", least=0, most=20) or 0
    body["logprobs"] = max(count, 1)
    return count


def _schema(given: dict[str, Any]) -> dict[str, Any] | None:
    """The JSON Schema that the answer must obey; None: any text will do."""
    format = given.get("response_format")
    if format is None:
        return None if given.get("guided_json") is None else checked(given["guided_json"], "guided_json")
    kind = format.get("type") if isinstance(format, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        # Some clients put the schema here.
        schema = format.get("schema") or format.get("json_schema")
        return checked(_bare(schema), "response_format") if schema else {"type": "object"}
    if kind == "json_schema" and format.get("json_schema") is not None:
        return checked(_bare(format["json_schema"]), "response_format")
    raise BadRequest('"response_format" must be {"type": "text" | "json_object" | "json_schema", "json_schema": a schema}')


def _bare(schema: Any) -> Any:
    """The schema out of OpenAI's envelope {name, schema, strict}, or what is one already."""
    if isinstance(schema, dict) and isinstance(schema.get("schema"), dict) and "type" not in schema and "properties" not in schema:
        return schema["schema"]
    return schema


def _flag(given: dict[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise BadRequest(f'"{name}" must be true or false')
    return value


def _number(given: dict[str, Any], name: str, least: float, most: float) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise BadRequest(f'"{name}" must be a number from {least} to {most}')
    return value


def _integer(given: dict[str, Any], name: str, *, least: int | None = None, most: int | None = None) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or (least is not None and value < least) or (most is not None and value > most):
        bounds = f" from {least}" if least is not None else ""
        bounds += f" to {most}" if most is not None else " on" if bounds else ""
        raise BadRequest(f'"{name}" must be a whole number{bounds}')
    return int(value)
