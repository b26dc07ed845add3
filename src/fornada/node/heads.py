"""The JSON heads of what runners say, read as what they mean. Runners are hostile: anything may stand there."""

from typing import Any

from fornada.core.errors import BadRequest, FornadaError, ModelRaised, OutOfDeviceMemory, RunnerDied
from fornada.core.requests import AnswerHead
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import decode, encode


def object_of(payload: bytes) -> dict[str, Any]:
    """A message of JSON. Raises ValueError, also for half a character: no view, log or refusal that shows its text could be sent."""
    found = decode(payload)
    encode(found)
    return found


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
