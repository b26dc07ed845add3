"""One file per way to execute weights.

In: a loaded artifact, inputs.
Out: outputs.
May import: `fornada_sdk`, and inside `load` the libraries of the model's environment.

An engine is a module with one function, `load(assignment, context) -> Loaded`. It runs on the main thread before
`Model.load`, may call `context.progress(text, fraction)`, and raises LoadError (or anything else) if it can't go on. The
name in model.toml is the module's name here: engine = "onnx" is engines/onnx.py. Where models may share a process, LIBRARIES
names what all of them import.

An engine that executes weights gives `Loaded.target` a Model whose `engine` is an object with

    run(inputs) -> outputs                      one request: {name: array} in, {name: array} out
    run_batch(list of inputs) -> list of outputs    where the weights can take several at once
    sleep(context), wake(context)               where it can give its memory on the device back and take it again, with equal
                                                answers; `sleeps`, False: not with these weights. Never called with a request
                                                under way; what one of them raises is the end of the process

and asks `engines.python.author(assignment)` for the author's own Model, if `entry` names one, to put the weights into.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Union

from fornada_sdk.api import Model
from fornada_sdk.api_context import Context
from fornada_sdk.runner.assignment import Assignment

NAME_LONGEST = 41
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")

Target = Union[Model, Callable[..., Any]]
"""A Model, or a function handle_request(request, context)."""


class LoadError(Exception):
    """The model can't be loaded; the message is one line for the model's author."""


class Tensor(NamedTuple):
    """One tensor that goes in or comes out; -1 in `shape` is free. `dtype` is one of core.specs.Dtype."""

    name: str
    dtype: str
    shape: Sequence[int]


class Loaded(NamedTuple):
    """What an engine hands to the runner, which then calls `target.load`, the warm-up, and serves."""

    target: Target
    inputs: Sequence[Tensor] = ()
    outputs: Sequence[Tensor] = ()


def load(assignment: Assignment, context: Context) -> Loaded:
    """Loads the assignment's model by its engine. Raises LoadError, or what model code raised."""
    loaded = _module(assignment.engine).load(assignment, context)
    assert isinstance(loaded, Loaded)
    return loaded


def prepare(name: str) -> None:
    """Imports what every model of the engine needs, where the engine says so. Raises LoadError, or what an import raises."""
    for library in getattr(_module(name), "LIBRARIES", ()):
        importlib.import_module(library)


def _module(name: str) -> Any:
    if not name or len(name) > NAME_LONGEST or not set(name) <= NAME_CHARACTERS:
        raise LoadError(f"'{name}' is no name of an engine")
    full = f"fornada_sdk.runner.engines.{name}"
    try:
        return sys.modules.get(full) or importlib.import_module(full)
    except ModuleNotFoundError as error:
        if error.name != full:
            raise
        raise LoadError(f"this release has no engine '{name}'") from None


def declared(tensors: Mapping[str, Any], side: str) -> list[Tensor]:
    """The tensors that model.toml declares; `side` is "inputs" or "outputs"."""
    return [Tensor(entry["name"], entry["dtype"], list(entry["shape"])) for entry in tensors.get(side) or []]
