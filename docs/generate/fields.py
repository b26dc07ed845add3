"""Fields of a msgspec.Struct with their defaults and the docstrings below them."""

import ast
import functools
import inspect
import textwrap
import types
from typing import Any, NamedTuple, get_args, get_origin

import msgspec


class Field(NamedTuple):
    """`default` is the default's Python value, or REQUIRED."""

    name: str
    type: Any
    default: Any
    meaning: str


REQUIRED = msgspec.NODEFAULT


def of(struct: type[msgspec.Struct]) -> list[Field]:
    """In the order of the code. Raises LookupError for a field that nobody described."""
    meanings = _docstrings(struct)
    found = []
    for field in msgspec.structs.fields(struct):
        default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
        if is_table(default):
            meaning = meanings.get(field.name, "")  # its own heading explains it
        else:
            meaning = meanings.get(field.name, "")
            if not meaning:
                raise LookupError(f"{struct.__name__}.{field.name} has no docstring")
        found.append(Field(field.name, field.type, default, meaning))
    return found


def is_table(default: Any) -> bool:
    return isinstance(default, msgspec.Struct)


def kind(annotation: Any) -> str:
    """A type in words: `text`, `number`, `list of texts`, `one of a, b`."""
    if hasattr(annotation, "__supertype__"):
        return "size"  # ByteCount is the only NewType in files that people write
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is list:
        return f"list of {kind(arguments[0])}s"
    if origin is dict:
        return "table"
    if origin is not None and all(isinstance(argument, str) for argument in arguments):
        return "one of " + ", ".join(arguments)
    if arguments:  # a union with None
        return " or ".join(kind(argument) for argument in arguments if argument is not types.NoneType)
    return {str: "text", int: "whole number", float: "number", bool: "true or false"}.get(annotation, "table")


@functools.cache
def _docstrings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Field -> the string that stands below it."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant) and isinstance(following.value.value, str):
                found[statement.target.id] = following.value.value
    return found
