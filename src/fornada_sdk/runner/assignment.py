"""ASSIGN: what a runner is to run. The node writes it, the keeper passes it on unread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

SLACK_BYTES = 1024 * 1024
"""What a body may be larger on the wire than `max_body`: the JSON around binary fields."""


class Assignment(NamedTuple):
    """One instance of one version. Every field but the first four may be left out of the JSON."""

    instance: str
    model: str
    engine: str
    folder: str
    """Absolute path of the model's folder."""
    version: str = ""
    account: str = "local"
    entry: str = ""
    """[python] entry, relative to `folder`; empty: model.py where the engine needs code."""
    artifacts: Mapping[str, str] = {}
    """Path in model.toml -> absolute path."""
    adapters: str = ""
    """Folder of the fine-tunes of this model, one folder with the adapter's files for each; empty: the engine applies none."""
    scratch: str = ""
    """A directory that the model may write to; empty: none was made, a temporary one serves."""
    settings: Mapping[str, Any] = {}
    command: Mapping[str, Any] = {}
    """[command], for the engine of that name: args, socket, port, health, sleep, wake."""
    task: str = "custom"
    memory_bytes: int = 0
    """resources.memory_bytes; 0: not said."""
    threads: int = 1
    """resources.threads"""
    device_id: str = "cpu"
    device_kind: str = "cpu"
    """cpu | fake | cuda"""
    device_memory_bytes: int = 0
    concurrency: int = 1
    """serving.concurrency"""
    max_batch: int = 1
    max_wait_ms: float = 0.0
    max_body: int = 64 * 1024 * 1024
    """serving.max_body, in bytes."""
    load_attempt: int = 1
    """Attempts to load this model since it was registered or reset, this one included."""
    load_count: int = 1
    """Loads of this model on this node since it was registered, this one included."""
    tensors: Mapping[str, Any] = {}
    """{"inputs": [{"name", "dtype", "shape"}], "outputs": [...]} as model.toml declares them; empty lists: not declared."""
    example: str = ""
    """Absolute path of the request example; empty: the runner looks for example/request.* in the folder."""
    release: str = ""
    """Version of fornada that started the runner."""
    network: Sequence[str] = ()
    """resources.network: the host:port pairs that it may reach. Where there are any, the runner's end of the outbound channel comes with
    ASSIGN."""
    pid: int = 0
    """What the operator calls the process; 0: it looks for itself."""
    host: str = ""
    """Name of the process that it shares with others; empty: it has one of its own."""
    rest_after_s: float = 0.0
    """After so long without a request it gives mapped weights back to the page cache; 0: never. It may be stopped soon after."""


def read_assignment(given: Mapping[str, Any]) -> Assignment:
    """ASSIGN's JSON as an Assignment. Raises ValueError, naming the field, for one that is missing or of another kind."""
    flat = dict(given)
    for table, names in _TABLES.items():
        inner = flat.pop(table, None) or {}
        if not isinstance(inner, dict):
            raise ValueError(f"the assignment's '{table}' is no object")
        flat.update({names[key]: value for key, value in inner.items() if key in names})
    values = {}
    for field, kind in _KINDS.items():
        value = flat.get(field)
        if value is None:
            if field not in Assignment._field_defaults:
                raise ValueError(f"the assignment has no '{field}'")
            continue
        if not isinstance(value, kind):
            raise ValueError(f"the assignment's '{field}' is {type(value).__name__}")
        values[field] = value
    return Assignment(**values)


_TABLES = {
    "resources": {"memory_bytes": "memory_bytes", "threads": "threads"},
    "device": {"id": "device_id", "kind": "device_kind", "memory_bytes": "device_memory_bytes"},
    "serving": {"concurrency": "concurrency", "max_batch": "max_batch", "max_wait_ms": "max_wait_ms", "max_body": "max_body"},
}
_KINDS: dict[str, Any] = {
    **dict.fromkeys(["instance", "model", "engine", "folder", "version", "account", "entry", "adapters", "scratch", "task"], str),
    **dict.fromkeys(["device_id", "device_kind", "example", "release", "host"], str),
    **dict.fromkeys(["memory_bytes", "threads", "device_memory_bytes", "concurrency", "max_batch", "max_body"], int),
    **dict.fromkeys(["load_attempt", "load_count", "pid"], int),
    **dict.fromkeys(["max_wait_ms", "rest_after_s"], (int, float)),
    **dict.fromkeys(["artifacts", "settings", "command", "tensors"], dict),
    "network": list,
}
