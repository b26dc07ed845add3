"""The JSON heads of what runners say, read as what they mean. Runners are hostile: anything may stand there."""

from typing import Any

import msgspec

from fornada.core.errors import BadRequest, FornadaError, ModelRaised, OutOfDeviceMemory, RunnerDied
from fornada.core.requests import AnswerHead
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import HEAD_PREFIX, decode, encode

SHORT_BYTES = 64
_TIMED = b'{"run_s":'
_HEADS = msgspec.json.Decoder(AnswerHead)


def object_of(payload: bytes) -> dict[str, Any]:
    """A message of JSON. Raises ValueError, also for half a character: no view, log or refusal that shows its text could be sent."""
    found = decode(payload)
    encode(found)
    return found


def short_head(packet: bytes, begin: int, end: int) -> tuple[AnswerHead | None, int]:
    """(head, where the body begins) of an ANSWER between `begin` and `end` that says how long it took, and little more: (None, begin)
    for any other, and for what isn't ok. Raises msgspec's errors for what is no head.
    """
    text = begin + HEAD_PREFIX.size
    if not packet.startswith(_TIMED, text, end):
        return None, begin
    body = text + int(HEAD_PREFIX.unpack_from(packet, begin)[0])
    if body > min(end, text + SHORT_BYTES):
        return None, begin
    said = _HEADS.decode(packet[text:body])
    return (said, body) if said.status == "ok" else (None, begin)


def refusal_of(said: AnswerHead) -> FornadaError:
    """The error that an answer stands for whose status isn't ok. Raises ProtocolError for a status that the wire doesn't know."""
    match said.status:
        case "bad_request":
            return BadRequest(said.message or "the model refused the input")
        case "raised":
            return ModelRaised(said.message or "the model's code raised an error")
        case "out_of_memory":
            return OutOfDeviceMemory(said.message or "device memory ran out")
        case "cancelled":
            return RunnerDied(said.message or "the runner ended before it served the request")
        case _:
            raise ProtocolError(f"an answer with the status '{said.status}'")
