"""What model code derives from, returns and raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fornada_sdk.api_context import Context


class BadRequest(Exception):
    """The caller's input can't be served. `BadRequest("why")` fails this request alone, never its batch-mates."""


class OutOfDeviceMemory(MemoryError):
    """Device memory ran out; the message holds what was asked for and what is left."""


class Response:
    """An answer with its own media type, headers or status.

    `body`: bytes, str, anything that JSON can hold, or an iterator of those for a stream. Without `type`, bytes are
    application/octet-stream, a str is text/plain and all else is application/json. `headers` reach the caller if their
    names begin with content- or x-. `status` is 200 to 299, or 400 to 499 for a refusal of the model's own.
    """

    __slots__ = ("body", "headers", "status", "type")

    def __init__(self, body: Any = None, type: str = "", headers: Mapping[str, str] | None = None, status: int = 200) -> None:
        if not (200 <= status <= 299 or 400 <= status <= 499):
            raise ValueError(f"a response's status is 200 to 299 or 400 to 499, not {status}")
        self.body = body
        self.type = type
        self.headers = dict(headers or {})
        self.status = status


class Model:
    """The full form of a model: derive from it in model.py. Each method may be `async def`; only `run` or `run_batch` is needed.

    A request goes through preprocess, run and postprocess. With `max_batch` > 1 in model.toml and a `run_batch`, what
    waits at the same time goes through `run_batch` together: it gets the list of what `preprocess` returned and gives back a
    list of as many outputs in the same order, where a BadRequest object in place of an output fails that request alone. If
    it raises, each request is run again alone.
    """

    engine: Any = None
    """Around another engine than python: the loaded weights, set before `load`; see runner/engines."""

    sleeps: bool = True
    """What defines `sleep` and `wake` can say here, until its `load` has ended, that it can't sleep as it is set up."""

    def load(self, context: Context) -> Any:
        """Once per instance, before anything else."""

    def preprocess(self, request: Any, context: Context) -> Any:
        """From the request to what `run` takes; the request itself, unless overridden."""
        return request

    def run(self, inputs: Any, context: Context) -> Any:
        """From inputs to outputs: whatever a handle_request may return, a generator too. The weights' own `run`, unless overridden."""
        if self.engine is None:
            raise NotImplementedError(f"{type(self).__name__} has neither run nor run_batch")
        return self.engine.run(inputs)

    def run_batch(self, batch: list[Any], context: Context) -> Any:
        """As `run`, for several requests."""
        raise NotImplementedError(f"{type(self).__name__} has no run_batch")

    def postprocess(self, outputs: Any, context: Context) -> Any:
        """From one request's outputs to the answer; the outputs themselves, unless overridden."""
        return outputs

    def warmup(self, context: Context) -> Any:
        """What makes the first request fast. Unless overridden, the folder's request example goes through the model."""

    def sleep(self, context: Context) -> Any:
        """Gives device memory back, and keeps what `wake` needs in host memory. Only together with `wake`; never with a request under
        way. What was booked by `context.device.allocate` is given back with it. Around an engine that sleeps by itself it comes first,
        and needn't be there."""

    def wake(self, context: Context) -> Any:
        """Takes it again: answers are to be the same as before. What it raises is the end of the process; the next request gets a new one.
        Around an engine that sleeps by itself it comes after the weights are back."""
