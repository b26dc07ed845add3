"""Case 32: non-finite floats are null and flagged; what leaves is always JSON."""

import json

from tests.harness.bundles import archive
from tests.harness.fixtures import Probe
from tests.harness.node import Node


def test_nan_and_the_infinities_are_null_and_flagged(node: Node, probe: Probe):
    model = probe()
    answer = node.run(model, {"nan": True})
    assert answer.status == 200
    body = answer.json()  # strict: NaN would raise
    assert body["result"]["nan"] == [None, None, None]
    assert body["nonfinite"] is True
    assert "nonfinite" not in node.run(model, {"echo": 1.5}).json()


def test_they_are_found_at_any_depth(node: Node, fresh_name):
    name = fresh_name()
    code = """
def handle_request(request, context):
    nan, inf = float("nan"), float("inf")
    return {"a": [{"b": [1.0, nan, [-inf]]}], "c": inf, "d": {"e": {"f": nan}}, "text": "NaN Infinity", "n": 1e308}
"""
    node.deploy(name, archive({"model.toml": f'name = "{name}"\n', "model.py": code}))
    body = node.run(name, {}).json()
    expected = {"a": [{"b": [1.0, None, [None]]}], "c": None, "d": {"e": {"f": None}}, "text": "NaN Infinity", "n": 1e308}
    assert body["result"] == expected
    assert body["nonfinite"] is True


def test_they_are_null_in_a_stream_too(node: Node, fresh_name):
    name = fresh_name()
    code = "def handle_request(request, context):\n    yield {'x': float('nan')}\n    yield {'x': 1.0}\n"
    node.deploy(name, archive({"model.toml": f'name = "{name}"\n', "model.py": code}))
    stream = node.stream(name, {})
    assert [item["x"] for item in stream.items] == [None, 1.0] and stream.done
    answer = node.run(name, {}).json()
    assert [item["x"] for item in answer["result"]["items"]] == [None, 1.0]


def test_text_comes_back_as_it_went(node: Node, probe: Probe):
    model = probe()
    text = ["ünïcödé 日本語 🍞", '"quoted" \\ and \u2028', "\x01\x1f", "", "a\ud7ff\ue000b"]
    other = [{"k": None}, [], 0, -0.0, 2**63, 10**30, 1e-320]
    for value in [*text, *other]:
        assert node.ask(model, {"echo": value})["echo"] == value


def test_a_lone_surrogate_is_refused_or_kept_but_never_breaks_the_answer(node: Node, probe: Probe):
    model = probe()
    answer = node.run(model, {"echo": "\ud800"})
    assert answer.status in (200, 400)
    answer.json()


def test_numbers_that_are_no_json_are_refused_in_a_request(node: Node, probe: Probe):
    model = probe()
    for body in (b'{"echo": NaN}', b'{"echo": Infinity}', b'{"echo": -Infinity}'):
        answer = node.fetch("POST", "/client/v4/accounts/local/ai/run/" + model, body)
        assert (answer.status, answer.code) == (400, 5006), (body, answer.body)


def test_what_can_t_be_json_is_the_model_s_fault(node: Node, fresh_name):
    name = fresh_name()
    code = "def handle_request(request, context):\n    return {'x': object()}\n"
    node.deploy(name, archive({"model.toml": f'name = "{name}"\n', "model.py": code}))
    answer = node.run(name, {})
    assert (answer.status, answer.code) == (500, 3103), answer.body
    assert json.loads(answer.body)["errors"][0]["message"]
