"""docs/reference/settings.md from core.settings and app.config."""

import json
from collections.abc import Sequence
from typing import Any

import click

from docs.generate import fields
from docs.generate.markdown import code, table
from fornada.app import config
from fornada.cli.commands.serve import serve
from fornada.core import settings
from fornada.node.launch import INHERITED_VARIABLES
from fornada.node.provision.variables import CERTIFICATES, PLACES, PROXIES, UV

INTRODUCTION = """\
# Settings

What the operator sets. `fornada serve --config FILE` (or `FORNADA_CONFIG`) names a TOML file with the tables below; every key may be left
out, and an unknown one is refused with the name of its nearest neighbour. A flag beats the environment, the environment beats the file.

Sizes are written `512MiB`, `2GB` or as a number of bytes; names that end in `_s` are seconds, in `_ms` milliseconds.

```toml
[node]
max_resident = 3

[devices]
cpu = { budget = "8GiB" }
```
"""

CLIENT = [
    ("FORNADA_URL", "`--url` of the commands that talk to a node: where it is"),
    ("FORNADA_TOKEN", "`--token`: the key to show; in open mode any, or none"),
    ("FORNADA_ACCOUNT", "`--account`: the account to act for"),
]
NODE = [
    ("FORNADA_CONFIG", "`--config` of `fornada serve`: the file"),
    ("FORNADA_MIRROR", "[provision] mirror: asked before any source of an artifact"),
]


def page() -> str:
    parts = [INTRODUCTION]
    for name, section in settings.SECTIONS.items():
        parts.append(f"## [{name}]\n")
        parts.append(table(["key", "default", "meaning"], _rows(section)))
    parts.append("## Flags of `fornada serve`\n")
    parts.append(table(["flag", "environment", "meaning"], _flags()))
    parts.append("## Environment\n")
    variables = [(variable, f"`--{flag.replace('_', '-')}` of `fornada serve`") for variable, flag in config.ENVIRONMENT.items()]
    parts.append(table(["variable", "stands for"], [(code(name), meaning) for name, meaning in [*variables, *NODE, *CLIENT]]))
    parts.append(
        f"Builds of environments inherit, where they are set: {_codes((*CERTIFICATES, *PROXIES, *PLACES, *UV))}, and pip's index settings.\n"
    )
    parts.append(
        f"A model sees {_codes(INHERITED_VARIABLES)} of the node's environment, the `[env]` of its model.toml, and nothing else.\n"
    )
    return "\n".join(parts)


def _rows(section: Any, prefix: str = "") -> list[tuple[str, str, str]]:
    rows = []
    for field in fields.of(section):
        if fields.is_table(field.default):
            rows += _rows(type(field.default), f"{prefix}{field.name}.")
        elif field.name == "fake":
            rows.append((code(f"{prefix}fake"), code("[]"), field.meaning))
            rows += _rows(settings.FakeDeviceSettings, f"{prefix}fake[].")
        else:
            rows.append((code(prefix + field.name), code(json.dumps(field.default)), field.meaning))
    return rows


def _flags() -> list[tuple[str, str, str]]:
    rows = []
    variables = {flag: variable for variable, flag in config.ENVIRONMENT.items()} | {"config": "FORNADA_CONFIG"}
    for option in serve.params:
        if isinstance(option, click.Option) and not option.hidden:
            variable = variables.get(option.name or "", "")
            rows.append((code(option.opts[0]), code(variable) if variable else "", option.help or ""))
    return rows


def _codes(names: Sequence[str]) -> str:
    return ", ".join(code(name) for name in names)
