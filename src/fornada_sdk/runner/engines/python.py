"""engine = "python": the author's own code is the model."""

from __future__ import annotations

import importlib.util
import os
import sys
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
    target = author(assignment._replace(entry=assignment.entry or DEFAULT_ENTRY))
    assert target is not None
    return Loaded(target, declared(assignment.tensors, "inputs"), declared(assignment.tensors, "outputs"))


def author(assignment: Assignment) -> Target | None:
    """The author's Model (made, not yet loaded) or handle_request out of the entry; None where the model has no code of its own."""
    if not assignment.entry:
        return None
    path = os.path.join(assignment.folder, assignment.entry)
    if not os.path.isfile(path):
        raise LoadError(f"the model's folder has no {assignment.entry}")
    sys.path.insert(0, os.path.dirname(path))
    return _target(_imported(path), assignment.entry)


def _imported(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{os.path.basename(path)} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
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
