"""What engines that execute weights share: which file, whose code around it, and how a request meets the session."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Protocol

from fornada_sdk.api import Model
from fornada_sdk.api_context import Context
from fornada_sdk.api_tensors import Tensors
from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.engines import Loaded, LoadError, declared
from fornada_sdk.runner.engines.python import author
from fornada_sdk.runner.engines.tensors import Arrays, TensorInfo, from_json, from_tensors, metadata, run_together, zeros
from fornada_sdk.runner.warmup import example

DEPTH = 3
"""Levels of the model's folder that are searched for weights that are no artifact."""


class Session(Protocol):
    """Loaded weights."""

    inputs: list[TensorInfo]
    outputs: list[TensorInfo]

    def run(self, inputs: Arrays) -> Arrays:
        """One call of the library."""


class Weights:
    """`Model.engine`: what the author's code may ask of the weights.

    Asleep there is no `session`: it is dropped, and made anew from the same file, which the machine has in its page cache meanwhile as
    long as it has room.
    """

    def __init__(self, load: Callable[[], Session]) -> None:
        """`load` is called at once, and each time that the weights wake up. Raises what it raises."""
        self._load = load
        self.session = session = load()
        self.inputs = session.inputs
        self.outputs = session.outputs

    def sleep(self, context: Context) -> None:
        """Lets go of the weights."""
        del self.session

    def wake(self, context: Context) -> None:
        """Loads them again. Raises what the library raises."""
        self.session = self._load()

    def run(self, inputs: Arrays) -> Arrays:
        """One call: {name: array} in, {name: array} out. Axis 0 counts rows. Raises what the library raises."""
        return self.session.run(inputs)

    def run_batch(self, batch: Sequence[Arrays]) -> list[Arrays]:
        """Several requests in as few calls as their shapes allow; the outputs in the same order."""
        return run_together(self.run, batch)


class Declarative(Model):
    """A model without code: tensors in, tensors out; as JSON `{"inputs": {name: values}}` and `{"outputs": {name: values}}`."""

    def preprocess(self, request: Any, context: Context) -> Arrays:
        tensors = request.tensors
        return from_tensors(tensors, self.engine.inputs) if tensors else from_json(request.body.json, self.engine.inputs)

    def postprocess(self, outputs: Arrays, context: Context) -> Any:
        return Tensors(outputs)


class Unexampled(Declarative):
    """The same without a request example: the smallest input warms it up."""

    def warmup(self, context: Context) -> None:
        try:
            self.engine.run(zeros(self.engine.inputs))
        except Exception as error:  # noqa: BLE001 - any library's; that a guess doesn't fit says nothing about the model
            context.log.info("not warmed up: there is no example, and an input of zeros doesn't fit", error=error)


def load_weights(
    assignment: Assignment, context: Context, *, session: Callable[..., Session], is_model: Callable[[str], bool], what: str
) -> Loaded:
    """Finds and loads the weights, and puts them into the author's Model, or into one that needs no code.

    `session` is called with the path, `threads` and `device` (cpu or cuda); `what` says in words what `is_model` accepts.
    Raises LoadError where there are no weights or the author's code has no place for them.
    """
    path = find(assignment, is_model, what)
    weights = Weights(lambda: session(path, threads=assignment.threads, device=device_of(assignment)))
    target = author(assignment) if assignment.entry else Declarative() if example(assignment) else Unexampled()
    if not isinstance(target, Model):
        raise LoadError(f"around engine {assignment.engine}, {assignment.entry} must hold a class derived from fornada_sdk.Model")
    target.engine = weights
    inputs, outputs = declared(assignment.tensors, "inputs"), declared(assignment.tensors, "outputs")
    return Loaded(target, inputs or metadata(weights.inputs), outputs or metadata(weights.outputs))


def find(assignment: Assignment, is_model: Callable[[str], bool], what: str) -> str:
    """Path of the weights: among the artifacts first, in the order of model.toml, then in the model's folder.

    Raises LoadError where there are none, or several in the folder.
    """
    for path in assignment.artifacts.values():
        if is_model(path):
            return path
    found = sorted(path for path in _paths(assignment.folder) if is_model(path))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(os.path.relpath(path, assignment.folder) for path in found)
        raise LoadError(f"the folder holds several models ({names}); name the one to load as an artifact")
    raise LoadError(f"neither the artifacts nor the folder hold {what}")


def _paths(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        yield place
        yield from (os.path.join(place, name) for name in files)
        if place[len(folder) :].count(os.sep) >= DEPTH:
            folders.clear()


def device_of(assignment: Assignment) -> str:
    """cpu or cuda."""
    # The fake device is memory on paper: what is placed on it computes on the CPU.
    return "cuda" if assignment.device_kind == "cuda" else "cpu"
