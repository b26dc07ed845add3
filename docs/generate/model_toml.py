"""docs/reference/model-toml.md from core.specs."""

import json
from typing import Any

import msgspec

from docs.generate import fields
from docs.generate.markdown import code, table
from fornada.core import specs
from fornada.core.names import NAME_LONGEST, RESERVED_LAST_SEGMENTS
from fornada.core.resources import format_size

INTRODUCTION = f"""\
# model.toml

What a model declares. It lies in the model's folder beside the code; `fornada deploy FOLDER` reads it, and refuses with one line what it
doesn't understand. Only `name` is needed, and that only where the deploy gives none. A folder with nothing but a `model.py` (and perhaps a
`requirements.txt`) is a model too: its name is `@local/FOLDER`, everything else stands at its default.

A name is `author/model` with as many slashes as you like and at most {NAME_LONGEST} characters. It holds no colon, because `name:x` means a
version (12 or more digits of it) or a label, and its last part is none of the API's verbs:
{", ".join(sorted(RESERVED_LAST_SEGMENTS))}.

Sizes are written `512MiB`, `2GB` or as a number of bytes; names that end in `_s` are seconds, in `_ms` milliseconds.

```toml
name = "@acme/plates"
engine = "onnx"
description = "Reads number plates."

[python]
entry = "model.py"
dependencies = ["onnxruntime==1.32.0", "numpy==2.4.6"]

[resources]
memory = "1GiB"

[serving]
max_batch = 16

[[artifacts]]
path = "plates.onnx"
sha256 = "…64 hex digits…"
source = ["https://example.org/plates.onnx"]
```
"""
FREE = ("settings", "env", "properties", "price")


def page() -> str:
    parts = [INTRODUCTION, "## At the top\n"]
    top = [field for field in fields.of(specs.ModelSpec) if not fields.is_table(field.default) and field.name not in ("artifacts", *FREE)]
    parts.append(table(["key", "type", "default", "meaning"], [_row(field) for field in top]))
    for name, struct in specs.TABLES.items():
        parts += [f"## [{name}]\n", _purpose(struct)]
        if name == "tensors":
            parts += ["### [[tensors.inputs]] and [[tensors.outputs]]\n", _table_of(specs.TensorSpec)]
        else:
            parts.append(_table_of(struct))
    for name in FREE:
        (field,) = [field for field in fields.of(specs.ModelSpec) if field.name == name]
        parts.append(f"## [{name}]\n\n{field.meaning}\n")
    parts += ["## [[artifacts]]\n", _purpose(specs.ArtifactSpec), _table_of(specs.ArtifactSpec)]
    parts += ["### convert = { … }\n", _purpose(specs.ConvertSpec), _table_of(specs.ConvertSpec)]
    return "\n".join(parts)


def _table_of(struct: type[msgspec.Struct]) -> str:
    return table(["key", "type", "default", "meaning"], [_row(field) for field in fields.of(struct)])


def _purpose(struct: type[msgspec.Struct]) -> str:
    """The struct's docstring without the `[table]: ` in front."""
    text = (struct.__doc__ or "").strip()
    text = text.split("]: ", 1)[-1].rstrip(".")
    return text[0].upper() + text[1:] + ".\n"


def _row(field: fields.Field) -> tuple[str, str, str, str]:
    return (code(field.name), fields.kind(field.type), _default(field), field.meaning)


def _default(field: fields.Field) -> str:
    value: Any = field.default
    if value is fields.REQUIRED:
        return "required"
    if value is None:
        return ""
    if fields.kind(field.type) == "size":
        return code(json.dumps(format_size(value).replace(" ", ""))) if value else code("0")
    return code(json.dumps(value))
