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

import json
import re
from typing import Any, NamedTuple

from fornada_sdk.api import BadRequest
from fornada_sdk.runner.engines.gguf_header import Header
from fornada_sdk.runner.engines.gguf_messages import read_messages
from fornada_sdk.runner.engines.gguf_tools import Tools, read_tools

DEFAULT_TOKENS = 256
DEFAULT_TEMPERATURE = 0.6
MOST_CHOICES = 128
MOST_STOPS = 16
MOST_BIASES = 1024
SCHEMA_BYTES = 32 * 1024
SCHEMA_VALUES = 1500
SCHEMA_DEPTH = 100
"""A schema becomes a grammar that is tried against the whole vocabulary at each token: an `enum` of 5000 texts took 38 s for one."""
_BOUNDS = (("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"), ("minimum", "maximum"))
PATTERN_PARTS, PATTERN_OPTIONS = 2000, 60
_REPEATED = re.compile(r"\{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}")
_ELEMENT = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_LONGEST_NUMBER = 9
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
            calls = _checked(tools.schema(), "tools")
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
        return None if given.get("guided_json") is None else _checked(given["guided_json"], "guided_json")
    kind = format.get("type") if isinstance(format, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        # Some clients put the schema here.
        schema = format.get("schema") or format.get("json_schema")
        return _checked(_bare(schema), "response_format") if schema else {"type": "object"}
    if kind == "json_schema" and format.get("json_schema") is not None:
        return _checked(_bare(format["json_schema"]), "response_format")
    raise BadRequest('"response_format" must be {"type": "text" | "json_object" | "json_schema", "json_schema": a schema}')


def _bare(schema: Any) -> Any:
    """The schema out of OpenAI's envelope {name, schema, strict}, or what is one already."""
    if isinstance(schema, dict) and isinstance(schema.get("schema"), dict) and "type" not in schema and "properties" not in schema:
        return schema["schema"]
    return schema


def _checked(schema: Any, field: str) -> dict[str, Any]:
    if not isinstance(schema, dict):
        raise BadRequest(f'"{field}" must hold a JSON Schema, an object')
    if len(json.dumps(schema)) > SCHEMA_BYTES or _values(schema, SCHEMA_DEPTH) > SCHEMA_VALUES:
        raise BadRequest(f'the schema in "{field}" is too large: up to {SCHEMA_BYTES} bytes and {SCHEMA_VALUES} values are taken')
    if contradiction := _contradiction(schema):
        raise BadRequest(f'the schema in "{field}" can\'t be met: {contradiction}')
    return schema


def _contradiction(value: Any) -> str:
    """Bounds that nothing meets, in words: llama.cpp counts from the lower one up to the upper one, and never arrives. Empty: none."""
    if isinstance(value, list):
        return next(filter(None, map(_contradiction, value)), "")
    if not isinstance(value, dict):
        return ""
    for least, most in _BOUNDS:
        low, high = value.get(least), value.get(most)
        if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low > high:
            return f"{least} is {low}, and {most} is {high}"
    pattern = value.get("pattern")
    if isinstance(pattern, str) and (why := _endless(pattern)):
        return why
    return next(filter(None, map(_contradiction, value.values())), "")


def _endless(pattern: str) -> str:
    """What of a regular expression would keep llama.cpp busy for minutes or for ever, in words: it writes repetitions out, and follows all
    ways through parts that may be left out at once. Empty: nothing."""
    sums, last, at = [(0, 0)], (0, 0), 0
    closed = pattern.rfind("]")
    while at < len(pattern):
        repeated = _REPEATED.match(pattern, at)
        parts, options = sums[-1]
        if repeated:
            low, high = repeated[1], repeated[2] if repeated[2] else repeated[1]
            if len(low) > _LONGEST_NUMBER or len(high) > _LONGEST_NUMBER or int(low) > int(high):
                return f"its pattern repeats {{{low[:20]},{high[:20]}}} times"
            sums[-1] = parts + last[0] * (int(high) - 1), options + last[1] * (int(high) - 1)
            last = last[0] * int(high), last[1] * int(high)
            at = repeated.end()
        elif pattern[at] == "(":
            sums.append((0, 0))
            if len(sums) > SCHEMA_DEPTH:
                return f"its pattern has more than {SCHEMA_DEPTH} brackets in each other"
            at += 1
        elif pattern[at] == ")" and len(sums) > 1:
            last = sums.pop()
            sums[-1] = sums[-1][0] + last[0], sums[-1][1] + last[1]
            at += 1
        elif pattern[at] in "?*+":
            last = last[0], last[1] + 1
            sums[-1] = parts, options + 1
            at += 1
        else:
            last = 1, 0
            sums[-1] = parts + 1, options
            element = _ELEMENT.match(pattern, at) if at < closed or pattern[at] == "\\" else None
            after = element.end() if element else at + 1
            if pattern[at] == "[" and after == at + 1:
                closed = -1  # nothing closes what is opened from here on: looking again each time would take long
            at = after
        if sums[-1][0] > PATTERN_PARTS or sums[-1][1] > PATTERN_OPTIONS:
            most = f"{PATTERN_PARTS} parts, or {PATTERN_OPTIONS} of ?, * and +"
            return f"its pattern has more than {most}, with its repetitions written out"
    return ""


def _values(value: Any, depth: int) -> int:
    if depth == 0:
        return SCHEMA_VALUES + 1
    if isinstance(value, dict):
        return 1 + sum(_values(each, depth - 1) for each in value.values())
    if isinstance(value, list):
        return 1 + sum(_values(each, depth - 1) for each in value)
    return 1


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
