"""Changed copies of the probe: the folder's two files, with name, [settings], [serving], [resources] and dependencies of one's own."""

import ast
import difflib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fornada.core.errors import FornadaError
from fornada.core.specs import ResourcesSpec, ServingSpec, read_spec

HERE = Path(__file__).resolve().parent
TABLES: Mapping[str, tuple[str, ...]] = {
    "serving": ServingSpec.__struct_fields__,
    "resources": ResourcesSpec.__struct_fields__,
}


class Refused(Exception):
    """The copy can't be written as asked; the message is one line."""


def write_probe(
    folder: Path,
    *,
    name: str = "@local/probe",
    settings: Mapping[str, Any] | None = None,
    serving: Mapping[str, Any] | None = None,
    resources: Mapping[str, Any] | None = None,
    dependencies: Sequence[str] = (),
) -> Path:
    """Writes a copy of the probe into `folder`, which is made; returns it. Raises Refused for an unknown key or a bad value."""
    tables = {"settings": settings or {}, "serving": serving or {}, "resources": resources or {}}
    known = {"settings": probe_settings(), **TABLES}
    for table, values in tables.items():
        for key in values:
            _refuse_unknown(table, key, known[table])
    text = _changed((HERE / "model.toml").read_text(), name, tables, dependencies)
    try:
        read_spec(text)
    except FornadaError as error:
        raise Refused(error.message) from None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.toml").write_text(text)
    (folder / "model.py").write_bytes((HERE / "model.py").read_bytes())
    return folder


def probe_settings() -> tuple[str, ...]:
    """Names of the probe's settings, read out of model.py without running it."""
    for node in ast.parse((HERE / "model.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SETTINGS":
            return tuple(ast.literal_eval(node.value))
    raise AssertionError("model.py has no SETTINGS")


def value_of(text: str) -> Any:
    """What stands on the command line, as a TOML value: true, false, a number, a list, or else a string ("inf" too)."""
    if text in ("true", "false"):
        return text == "true"
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, float) and not math.isfinite(value) else value


def _refuse_unknown(table: str, key: str, known: Sequence[str]) -> None:
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
        raise Refused(f"[{table}] of the probe has no '{key}'; {hint}")


def _changed(text: str, name: str, tables: Mapping[str, Mapping[str, Any]], dependencies: Sequence[str]) -> str:
    text = text.replace('name = "@local/probe"', f"name = {_toml(name)}", 1)
    text = text.replace('entry = "model.py"', f'entry = "model.py"\ndependencies = {_toml(list(dependencies))}', 1)
    for table, values in tables.items():
        if values:
            text += f"\n[{table}]\n" + "".join(f"{_toml_key(key)} = {_toml(value)}\n" for key, value in values.items())
    return text


def _toml_key(key: str) -> str:
    return key if key.replace("_", "").isalnum() else _toml(key)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(inner) for inner in value)}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
    raise Refused(f"{type(value).__name__} is no value of TOML")
