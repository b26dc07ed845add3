"""What a gateway reads in answers: their media type, the tokens that they count, what they cost."""

import math
import sys
from collections.abc import Mapping

import msgspec

from fornada.core.gateway import CustomCost
from fornada.core.specs import ModelSpec
from fornada.core.usage import TOKENS_MOST, amount_of
from fornada.edge.event_stream import EVENT_STREAM

DOLLARS_A_NEURON = 0.011 / 1000
"""What Cloudflare takes for neurons beyond the free ones (WORKERS_AI.md, 12): so that `cost` is in dollars here as there."""
TAIL_BYTES = 8 * 1024
"""Of a stream: its last events say what was used."""
_TYPE = b"content-type:"
_DATA = b"data: "


class _Used(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Inner(msgspec.Struct):
    usage: _Used | None = None


class _Answer(msgspec.Struct):
    usage: _Used | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    response: msgspec.Raw = msgspec.Raw(b"null")


def type_of(lines: bytes) -> str:
    """The media type that header lines name, with its parameters."""
    for line in lines.split(b"\r\n"):
        if line[: len(_TYPE)].lower() == _TYPE:
            return line[len(_TYPE) :].strip().decode("latin-1")
    return ""


def tokens_of(type: str, body: bytes) -> tuple[int, int]:
    """Tokens taken and given, as the answer says it; 0 where it doesn't. Of a stream the last bytes are enough."""
    if type.startswith(EVENT_STREAM):
        for line in reversed(body.split(b"\n")):
            if line.startswith(_DATA) and b"usage" in line and any(found := _tokens(line[len(_DATA) :])):
                return found
        return 0, 0
    return _tokens(body) if type.startswith("application/json") else (0, 0)


def _tokens(body: bytes) -> tuple[int, int]:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.MsgspecError, RecursionError):
        return 0, 0
    used = answer.usage or _inner(answer.result) or _inner(answer.response)
    if used is None:
        return 0, 0
    taken, given = used.prompt_tokens or used.input_tokens or 0, used.completion_tokens or used.output_tokens or 0
    return min(max(0, taken), TOKENS_MOST), min(max(0, given), TOKENS_MOST)


def _inner(raw: msgspec.Raw) -> _Used | None:
    try:
        return msgspec.json.decode(raw, type=_Inner).usage
    except (msgspec.MsgspecError, RecursionError):
        return None


def cost_of(custom: CustomCost | None, spec: ModelSpec | None, tokens: tuple[int, int], run_s: float) -> float:
    """Dollars, always finite: JSON has no other numbers, and one log that can't be read back hides all of its page."""
    dollars = _dollars(custom, spec, tokens, run_s)
    return dollars if math.isfinite(dollars) else sys.float_info.max


def _dollars(custom: CustomCost | None, spec: ModelSpec | None, tokens: tuple[int, int], run_s: float) -> float:
    if custom is not None:
        if custom.total_cost is not None:
            return custom.total_cost
        return custom.per_token_in * tokens[0] + custom.per_token_out * tokens[1]
    if spec is None or not spec.price:
        return 0.0
    counted: Mapping[str, int] = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
    return amount_of(spec.price, counted, run_s).neurons * DOLLARS_A_NEURON
