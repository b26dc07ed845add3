"""What lives, by the node's log and /proc alone: what a ledger is compared with."""

import json
from typing import Any, NamedTuple

from tests.harness.node import Node

_THERE = frozenset({"instance.spawned", "instance.adopted"})


class Living(NamedTuple):
    """A process of a model."""

    model: str
    instance: str
    pid: int


def living(node: Node) -> list[Living]:
    """Models' processes below the node that live now, whether anybody answers or not; in the order of their starts."""
    there: dict[str, Living] = {}
    for line in events(node):
        if line["event"] in _THERE:
            there[line["instance"]] = Living(line["model"], line["instance"], int(line["pid"]))
        elif line["event"] == "instance.ended":
            there.pop(line["instance"], None)
    alive = {process.pid for process in node.tree()}
    return [process for process in there.values() if process.pid in alive]


def events(node: Node) -> list[dict[str, Any]]:
    """The node's log."""
    lines = (node.data_dir / "logs/node.log").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be half written
