"""How large a schema is once its references are written out."""

import time
from typing import Any

import pytest

from fornada.core.schemas import EXPLAINED, LARGEST, measure

CALLED = {
    "by pointer": ("#/$defs/{}", None),
    "by anchor": ("#{}", "$anchor"),
    "by id": ("{}", "$id"),
}


def doubling(levels, *, called="by pointer", word="anyOf"):
    """Each definition names the next one twice."""
    form, name = CALLED[called]
    definitions: dict[str, dict[str, Any]] = {f"d{level}": {word: [{"$ref": form.format(f"d{level + 1}")}] * 2} for level in range(levels)}
    definitions[f"d{levels}"] = {"type": "string"}
    if name:
        for key, definition in definitions.items():
            definition[name] = key
    return {"$defs": definitions, "properties": {"a": {"$ref": form.format("d0")}}}


def test_a_plain_schema_is_as_large_as_it_looks():
    assert measure({"type": "object", "properties": {"a": {"type": "string"}, "b": {"anyOf": [{}, {}]}}}) == (6, True)
    assert measure(True) == (0, True)


@pytest.mark.parametrize("called", CALLED)
@pytest.mark.parametrize("word", ["anyOf", "oneOf", "allOf", "prefixItems"])
def test_what_doubles_with_each_line_is_found_at_once(called, word):
    began = time.monotonic()
    assert measure(doubling(60, called=called, word=word)).subschemas > LARGEST
    assert not measure(doubling(12, called=called, word=word)).explainable
    assert LARGEST > measure(doubling(12, called=called, word=word)).subschemas > EXPLAINED
    assert time.monotonic() - began < 1


def test_a_tree_may_be_described_by_itself():
    tree: dict[str, Any] = {"$defs": {"tree": {"properties": {"children": {"items": {"$ref": "#/$defs/tree"}}}}}, "$ref": "#/$defs/tree"}
    assert measure(tree).explainable
    tree["$defs"]["tree"]["anyOf"] = [{"required": ["x"]}, {"required": ["y"]}]
    found = measure(tree)
    assert (found.explainable, found.subschemas < 20) == (False, True)


@pytest.mark.parametrize("reference", ["#", "#/nowhere", "#/$defs/x/y", "http://elsewhere/x", "", "#/%zz~2", "#/allOf/7"])
def test_any_reference_can_be_followed_or_not(reference):
    assert measure({"$ref": reference, "allOf": [{}]}).subschemas < 10
