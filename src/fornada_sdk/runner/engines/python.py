"""engine = "python": the author's own code is the model."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType

from fornada_sdk.api import Model
from fornada_sdk.api_context import Context
from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.engines import Loaded, LoadError, Target, declared

DEFAULT_ENTRY = "model.py"
MODULE = "model"
"""The entry's name as a module, whatever the file is called: a model can import its own neighbours, never itself twice."""


def load(assignment: Assignment, context: Context) -> Loaded:
    """Imports the entry. Raises LoadError where it holds neither shape, and whatever the import raises."""
    target = _author(assignment.folder, assignment.entry or DEFAULT_ENTRY)
    assert target is not None
    return Loaded(target, declared(assignment.tensors, "inputs"), declared(assignment.tensors, "outputs"))


def author(assignment: Assignment) -> Target | None:
    """The author's Model (made, not yet loaded) or handle_request out of the entry; None where the model has no code of its own."""
    return _author(assignment.folder, assignment.entry) if assignment.entry else None


def _author(folder: str, entry: str) -> Target:
    path = os.path.join(folder, entry)
    if not os.path.isfile(path):
        raise LoadError(f"the model's folder has no {entry}")
    if not entry.endswith(".py"):
        raise LoadError(f"{os.path.basename(path)} is no Python file")
    sys.path.insert(0, os.path.dirname(path))
    return _target(_imported(path), entry)


def _imported(path: str) -> ModuleType:
    """As importlib makes one of a source file, without looking for its bytecode: there is none, and each start would pay for the look."""
    module = ModuleType(MODULE)
    module.__file__ = path
    module.__package__ = ""
    module.__loader__ = loader = SourceFileLoader(MODULE, path)
    module.__spec__ = ModuleSpec(MODULE, loader, origin=path)
    sys.modules[MODULE] = module
    with open(path, "rb") as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), vars(module))
    return module


def _target(module: ModuleType, entry: str) -> Target:
    classes = [
        value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Model) and value.__module__ == MODULE
    ]
    named = [value for value in classes if value.__name__ == "Model"]
    if len(named or classes) > 1:
        names = ", ".join(value.__name__ for value in classes)
        raise LoadError(f"{entry} has several models ({names}); name the one to serve Model")
    if classes:
        return (named or classes)[0]()
    function = getattr(module, "handle_request", None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    raise LoadError(f"{entry} has neither a class derived from fornada_sdk.Model nor a function handle_request(request, context)")
