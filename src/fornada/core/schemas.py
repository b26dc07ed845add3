"""How much a JSON Schema is, once each of its references is written out.

A few lines can stand for a tree that no machine gets through: each definition names the next one twice. What is checked
with a schema, and what is said about what doesn't match, costs time and memory by that tree, not by those lines.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

LARGEST = 100_000
"""Subschemas of a schema that may be used."""
EXPLAINED = 2_000
"""Subschemas up to which it is told which of them wasn't met."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_CHOICES = ("anyOf", "oneOf")
_ASIDE = frozenset(["$defs", "definitions", "const", "default", "enum", "examples"])
"""What isn't applied where it stands."""


class Measure(NamedTuple):
    """Of a schema."""

    subschemas: int
    """With references written out; one that leads back to itself counts once."""
    explainable: bool
    """What doesn't match can be told at a cost that the schema bounds: it isn't too large, and no choice leads back to itself, since
    each level of the value would double the ways of not matching."""


def measure(schema: Any) -> Measure:
    """Never raises for a schema that was read from JSON."""
    measuring = _Measuring(schema)
    count = measuring.of(schema)
    return Measure(count, count <= EXPLAINED and not (measuring.recursive and measuring.chooses))


class _Measuring:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[str, int] = {}
        self._named: dict[str, Any] = {}
        self._open: set[str] = set()
        self.recursive = False
        self.chooses = False
        self._find_names(root)

    def of(self, node: Any) -> int:
        if isinstance(node, list):
            return min(sum(map(self.of, node)), LARGEST + 1)
        if not isinstance(node, dict):
            return 0
        self.chooses = self.chooses or any(word in node for word in _CHOICES)
        count = 1 + sum(self.of(value) for key, value in node.items() if key not in _ASIDE)
        count += sum(self._referred(node[word]) for word in _REFERENCES if isinstance(node.get(word), str))
        return min(count, LARGEST + 1)

    def _referred(self, reference: str) -> int:
        if reference in self._open:
            self.recursive = True
            return 1
        if reference not in self._known:
            self._open.add(reference)
            self._known[reference] = self.of(self._target(reference))
            self._open.discard(reference)
        return self._known[reference]

    def _target(self, reference: str) -> Any:
        if reference in self._named:
            return self._named[reference]
        address, mark, pointer = reference.partition("#")
        node = self._named.get(address) if address else self._root
        for part in unquote(pointer).split("/")[1:] if mark else ():
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, Mapping):
                node = node.get(part)
            elif isinstance(node, list) and part.isascii() and part.isdigit() and int(part) < len(node):
                node = node[int(part)]
            else:
                return None
        return node

    def _find_names(self, node: Any) -> None:
        if isinstance(node, dict):
            for word, before in (("$id", ""), ("id", ""), ("$anchor", "#"), ("$dynamicAnchor", "#")):
                if isinstance(name := node.get(word), str):
                    self._named[before + name] = node
        for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            self._find_names(inner)
