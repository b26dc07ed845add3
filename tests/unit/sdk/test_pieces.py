"""The runner's smaller parts by themselves."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada_sdk import Context, Model, Response
from fornada_sdk.runner.assignment import read_assignment
from fornada_sdk.runner.encoding import to_json
from fornada_sdk.runner.engines import LoadError
from fornada_sdk.runner.invoke.servable import servable, with_rest
from fornada_sdk.runner.kept import ENTRY_BYTES, Kept

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


def cleaned(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: cleaned(inner) for key, inner in value.items()}
    return [cleaned(inner) for inner in value] if isinstance(value, list | tuple) else value


def strict(text: bytes) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in the answer")

    return json.loads(text.decode("utf-8"), parse_constant=refuse)


@given(VALUES)
def test_whatever_a_model_returns_leaves_as_strict_json(value):
    data, nonfinite = to_json(value)
    assert strict(data) == json.loads(json.dumps(cleaned(value)))
    assert nonfinite == ("NaN" in json.dumps(value) or "Infinity" in json.dumps(value)) or nonfinite is False


def test_nonfinite_is_told():
    assert to_json({"a": [math.nan]}) == (b'{"a":[null]}', True)
    assert to_json({"a": [1.0]}) == (b'{"a":[1.0]}', False)


def test_half_a_surrogate_pair_becomes_the_replacement_character():
    assert to_json(["\ud83d", "\ud83d\ude00"]) == ('["\ufffd","😀"]'.encode(), False)


@pytest.mark.parametrize("value", [{1, 2}, object(), {"a": b""}, [Context], {(1, 2): 3}])
def test_what_is_no_json_is_named(value):
    with pytest.raises(TypeError):
        to_json(value)


class Home:
    open = True


def test_kept_answers_go_to_the_successor_once_their_home_is_gone():
    kept = Kept(lambda *_: None)
    first, second = Home(), Home()
    kept.keep(1, [b"a"], 1, first)  # type: ignore[arg-type]
    kept.keep(2, [b"b"], 1, second)  # type: ignore[arg-type]
    kept.acknowledge(3)
    first.open = False
    assert kept.move(second) == [(1, [b"a"])]  # type: ignore[arg-type]
    assert kept.move(second) == []  # type: ignore[arg-type]
    kept.acknowledge(1)
    assert len(kept) == 1


@given(st.lists(st.tuples(st.integers(0, 5000), st.booleans()), max_size=60))
def test_kept_answers_never_exceed_their_bound_but_for_the_newest(steps):
    dropped: list[int] = []
    kept = Kept(lambda request, size: dropped.append(request), most_bytes=5000)
    live: dict[int, int] = {}
    home = Home()
    for number, (size, acknowledge) in enumerate(steps):
        kept.keep(number, [b""], size, home)  # type: ignore[arg-type]
        live[number] = size + ENTRY_BYTES
        for request in dropped:
            live.pop(request, None)
        assert sum(live.values()) <= 5000 or len(live) == 1
        assert len(kept) == len(live)
        if acknowledge:
            kept.acknowledge(number)
            live.pop(number, None)
    assert dropped == sorted(dropped)


def test_an_assignment_needs_few_fields_and_refuses_other_kinds():
    given = {"instance": "i", "model": "m", "engine": "python", "folder": "/f"}
    assignment = read_assignment({**given, "resources": {"memory_bytes": 5, "threads": 2, "new": 1}, "serving": {"max_wait_ms": 1.5}})
    assert (assignment.memory_bytes, assignment.threads, assignment.max_wait_ms, assignment.concurrency) == (5, 2, 1.5, 1)
    assert read_assignment({**given, "device": None, "entry": None, "added_later": 1}).device_id == "cpu"
    for wrong in ({"folder": None}, {"engine": 5}, {"resources": [1]}, {"serving": {"max_batch": "4"}}):
        with pytest.raises(ValueError, match="assignment"):
            read_assignment({**given, **wrong})


def test_a_response_checks_its_status():
    for status in (200, 299, 400, 499):
        assert Response(status=status).status == status
    for status in (100, 199, 301, 500):
        with pytest.raises(ValueError, match="status"):
            Response(status=status)


def test_the_shapes_of_a_model():
    def plain(request, context): ...
    def generator(request, context):
        yield

    async def coroutine(request, context): ...
    async def both(request, context):
        yield

    class Callable:
        async def __call__(self, request, context): ...

    seen = [(servable(f).is_async, servable(f).streaming) for f in (plain, generator, coroutine, both, Callable())]
    assert seen == [(False, False), (False, True), (True, False), (True, True), (True, False)]


def test_a_model_needs_run_or_run_batch_or_an_engine():
    class Nothing(Model): ...

    class Weights:
        def run(self, inputs):
            return inputs

        def run_batch(self, batch):
            return batch

    with pytest.raises(LoadError, match="Nothing has neither run nor run_batch"):
        servable(Nothing())
    model = Nothing()
    model.engine = Weights()
    found = servable(model)
    assert found.handle("x", Context.inactive()) == "x"
    assert found.run_batch is not None and found.run_batch(["x"], Context.inactive()) == ["x"]

    class Around(Nothing):
        def run(self, inputs, context):
            return self.engine.run(inputs) + "!"

    model = Around()
    model.engine = Weights()
    assert servable(model).run_batch is None, "the weights' own batches would pass by the author's run"


@pytest.mark.parametrize(("there", "missing"), [("sleep", "wake"), ("wake", "sleep")])
def test_one_step_without_the_other_is_refused_where_the_engine_has_none(there, missing):
    class Half(Model):
        def run(self, inputs, context):
            return inputs

    class Weights:
        sleeps = False

        def sleep(self, context): ...
        def wake(self, context): ...

    setattr(Half, there, lambda self, context: None)
    model = Half()
    for model.engine in (None, Weights()):
        with pytest.raises(LoadError, match=f"Half has {there} and no {missing}"):
            with_rest(servable(model), model)
    model.sleeps = False
    assert not with_rest(servable(model), model).sleeps
