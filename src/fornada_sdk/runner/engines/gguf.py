"""GGUF language models, run by llama.cpp (package xllamacpp) out of the model's own environment.

**What goes in** is the Workers AI input of text generation, `{"messages": [...]}` or `{"prompt": "..."}` with its parameters, under
their names there or at OpenAI (gguf_request.py has the list). `null` counts as absent everywhere. A prompt goes through the chat
template as the user's message, unless `raw` is true.

**What comes out** is OpenAI's, always, whichever door asked; the edge renders it (edge/text_generation.py):

    messages, or prompt          an object `chat.completion`
    prompt and raw               an object `text_completion`
    the caller wants a stream    items `chat.completion.chunk` (or `text_completion`); the last one has `choices: []` and `usage`

`model` is the model's name. A message always has `content`, a string or null, and `tool_calls` only if there are any. Token
counts also stand in `context.usage`. Tools work with any model: what its template can't show is written into the system message,
and a forced call is held to the tool's schema by a grammar (gguf_tools.py).

**Fine-tunes**: `lora` is {"finetune": id of a LoRA adapter of this model}, as the edge found it. It is converted when it is first asked for
(gguf_adapter.py), and the weights are loaded anew with it (gguf_weights.py).

**The library** is called in this process (gguf_library.py), never over HTTP. It can't do without a listener: that is a Unix socket in
the instance's scratch directory, whose name is taken away as soon as the weights are loaded. There is no TCP socket at any time.

[settings]: `context`, tokens of prompt and answer together that one request may have (default 4096, at most what the model was
trained with). `serving.concurrency` requests run at the same time, each in a slot with a context of its own: memory grows with both.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fornada_sdk.api import Model
from fornada_sdk.api_context import Context
from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.engines import Loaded, LoadError, declared
from fornada_sdk.runner.engines.gguf_adapter import Base
from fornada_sdk.runner.engines.gguf_answer import Answer, collected, streamed
from fornada_sdk.runner.engines.gguf_header import Header, read_header, read_shapes
from fornada_sdk.runner.engines.gguf_library import Llama
from fornada_sdk.runner.engines.gguf_request import Asked, read_request
from fornada_sdk.runner.engines.gguf_weights import Weights
from fornada_sdk.runner.engines.python import author
from fornada_sdk.runner.engines.weights import find

DEFAULT_CONTEXT = 4096
LEAST_CONTEXT = 64


class TextGeneration(Model):
    """The model without code of its own."""

    engine: Generator

    def run(self, inputs: Any, context: Context) -> Any:
        return self.engine.answer(inputs.body.json, context, stream=inputs.stream)


class Generator:
    """`Model.engine`: what the author's code may ask of the weights."""

    def __init__(self, weights: Weights, header: Header, name: str) -> None:
        self._weights = weights
        self._header = header
        self._name = name

    def sleep(self, context: Context) -> None:
        """Lets go of the weights and of all contexts."""
        self._weights.sleep()

    def wake(self, context: Context) -> None:
        """Loads them again. Raises LoadError."""
        self._weights.wake()

    def run(self, inputs: Any) -> dict[str, Any]:
        """The whole answer to an input as it is described above. Raises BadRequest. It can't be cancelled: `answer` can."""
        return collected(self._pieces(read_request(inputs, self._header), Context.inactive()))

    def answer(self, inputs: Any, context: Context, *, stream: bool = False) -> dict[str, Any] | Iterator[dict[str, Any]]:
        """The answer, or an iterator of its chunks. It ends within two tokens once `context.cancelled`. Raises BadRequest."""
        pieces = self._pieces(read_request(inputs, self._header), context)
        return streamed(pieces) if stream else collected(pieces)

    def _pieces(self, asked: Asked, context: Context) -> Answer:
        return Answer(asked, self._name, self._weights, context)


def load(assignment: Assignment, context: Context) -> Loaded:
    """Loads the weights, and the author's code around them. Raises LoadError, or what the library or model code raises."""
    path = find(assignment, is_model, "a .gguf file")
    header = read_header(path)
    tokens = context_of(assignment.settings, header)

    def library(adapters: Sequence[str]) -> Llama:
        return Llama(
            path,
            context=tokens,
            slots=max(1, assignment.concurrency),
            threads=assignment.threads,
            gpu=assignment.device_kind == "cuda",
            scratch=str(context.scratch),
            adapters=adapters,
        )

    target = author(assignment) if assignment.entry else TextGeneration()
    if not isinstance(target, Model):
        raise LoadError(f"around engine {assignment.engine}, {assignment.entry} must hold a class derived from fornada_sdk.Model")
    base = functools.cache(lambda: Base(header, read_shapes(path)))
    weights = Weights(library, base, adapters=assignment.adapters, scratch=str(context.scratch))
    target.engine = Generator(weights, header, assignment.model)
    return Loaded(target, declared(assignment.tensors, "inputs"), declared(assignment.tensors, "outputs"))


def is_model(path: str) -> bool:
    """Whether the file is what this engine loads."""
    return path.endswith(".gguf")


def context_of(settings: Mapping[str, Any], header: Header) -> int:
    """Tokens of one request's context. Raises LoadError for a setting that is none."""
    wanted = settings.get("context", DEFAULT_CONTEXT)
    if type(wanted) is not int or wanted < LEAST_CONTEXT:
        raise LoadError(f"[settings] context must be a whole number of tokens from {LEAST_CONTEXT} on, and is {wanted!r}")
    return min(wanted, header.context_length or wanted)
