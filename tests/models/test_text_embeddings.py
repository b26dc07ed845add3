"""MiniLM puts sentences of like meaning near one another."""

import json
from typing import Any

import numpy as np
import pytest

from tests.models.conftest import MODELS
from tests.models.runner import Runner

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLE = MODELS / "minilm" / "example"
FOOD = "A man is eating food."
BREAD = "A man is eating a piece of bread."
BABY = "The girl is carrying a baby."
HORSE = "A man is riding a horse."


def vectors(runner: Runner, **request: Any) -> np.ndarray:
    return np.asarray(runner.ask(request).json["data"])


def test_the_shipped_example_gives_the_shipped_answer(embedder: Runner) -> None:
    answer = embedder.send((EXAMPLE / "request.json").read_bytes(), "application/json").json
    wanted = json.loads((EXAMPLE / "answer.json").read_text())
    assert answer["shape"] == wanted["shape"] == [1, 384] and answer["pooling"] == wanted["pooling"] == "mean"
    np.testing.assert_allclose(answer["data"], wanted["data"], atol=0.002)


@pytest.mark.parametrize(("other", "cosine", "within"), [(BREAD, 0.753, 0.02), (BABY, -0.105, 0.03), (HORSE, 0.254, 0.03)])
def test_cosines_say_how_near_sentences_are(embedder: Runner, other: str, cosine: float, within: float) -> None:
    first, second = vectors(embedder, text=[FOOD, other])
    assert first @ second == pytest.approx(cosine, abs=within)


def test_a_question_finds_its_answer(embedder: Runner) -> None:
    query, *rest = vectors(
        embedder,
        text=[
            "What is a pastel de nata?",
            "A pastel de nata is a Portuguese egg custard tart pastry, dusted with cinnamon.",
            "Lisbon is the capital of Portugal.",
            "A graphics card has its own memory.",
        ],
    )
    scores = [float(query @ each) for each in rest]
    assert scores[0] == max(scores) and scores[0] > scores[1] + 0.1 and scores[2] == min(scores)


def test_vectors_have_length_one_and_the_shape_is_told(embedder: Runner) -> None:
    answer = embedder.ask({"text": [FOOD, HORSE]}).json
    assert answer["shape"] == [2, 384] and answer["pooling"] == "mean" and sorted(answer) == ["data", "pooling", "shape"]
    np.testing.assert_allclose(np.linalg.norm(answer["data"], axis=1), 1, atol=1e-6)
    assert embedder.ask({"text": FOOD}).json["shape"] == [1, 384]


def test_the_neighbours_of_a_text_change_nothing(embedder: Runner) -> None:
    alone = vectors(embedder, text=FOOD)[0]
    texts = ["word " * 300, FOOD, "a", BREAD, "x" * 1000, FOOD]
    together = vectors(embedder, text=texts)
    np.testing.assert_allclose(together[1], alone, atol=1e-4)
    np.testing.assert_allclose(together[5], alone, atol=1e-4)
    assert together[3] @ alone == pytest.approx(0.753, abs=0.02)


def test_requests_that_share_a_batch_get_their_own_vectors_and_a_bad_one_fails_alone(embedder: Runner) -> None:
    bodies: list[Any] = [{"text": FOOD}, {"text": [BREAD, BABY]}, {"text": ""}, {"text": HORSE, "pooling": "cls"}, {"text": FOOD}]
    answers = embedder.send_all([(json.dumps(body).encode(), "application/json", []) for body in bodies])
    assert [answer.status for answer in answers] == ["ok", "ok", "bad_request", "ok", "ok"]
    food = vectors(embedder, text=FOOD)[0]
    np.testing.assert_allclose(answers[0].json["data"][0], food, atol=1e-4)
    assert np.asarray(answers[1].json["data"]) @ food == pytest.approx([0.753, -0.105], abs=0.03)
    np.testing.assert_allclose(answers[3].json["data"], vectors(embedder, text=HORSE, pooling="cls"), atol=1e-4)
    assert answers[3].json["pooling"] == "cls"


def test_cls_is_another_pooling(embedder: Runner) -> None:
    mean, cls = vectors(embedder, text=FOOD)[0], vectors(embedder, text=FOOD, pooling="cls")[0]
    assert np.linalg.norm(cls) == pytest.approx(1, abs=1e-6)
    assert abs(mean @ cls) < 0.95


def test_a_text_is_cut_at_512_tokens(embedder: Runner) -> None:
    whole = embedder.ask({"text": "word " * 510})
    longer = embedder.ask({"text": "word " * 510 + "and then much more about horses " * 50})
    np.testing.assert_allclose(longer.json["data"], whole.json["data"], atol=1e-5)
    assert longer.head["usage"]["input_tokens"] == whole.head["usage"]["input_tokens"] == 512


def test_usage_counts_the_tokens_of_all_texts(embedder: Runner) -> None:
    one = embedder.ask({"text": FOOD}).head["usage"]["input_tokens"]
    assert one == 8  # a man is eating food . and the two marks around it
    assert embedder.ask({"text": [FOOD] * 3}).head["usage"]["input_tokens"] == 3 * one


def test_a_hundred_texts_are_taken_and_one_more_is_not(embedder: Runner) -> None:
    assert embedder.ask({"text": [FOOD] * 100}).json["shape"] == [100, 384]
    assert embedder.ask({"text": [FOOD] * 101}).status == "bad_request"


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"text": []},
        {"text": ""},
        {"text": ["a", ""]},
        {"text": [1]},
        {"text": None},
        {"text": "a\ud800"},
        {"text": "a", "pooling": "max"},
        [],
        "a",
        None,
    ],
)
def test_what_is_no_text_is_the_callers_fault(embedder: Runner, value: Any) -> None:
    answer = embedder.ask(value)
    assert answer.status == "bad_request" and answer.head["message"]


@pytest.mark.parametrize("text", ["日本語の文", "🙂" * 50, "\u0000", "é" * 300, "a\ud7ff", " ", "\u202e" * 20])
def test_any_characters_make_a_vector(embedder: Runner, text: str) -> None:
    vector = vectors(embedder, text=text)
    assert vector.shape == (1, 384) and np.isfinite(vector).all()


def test_null_is_as_good_as_nothing_for_optional_fields(embedder: Runner) -> None:
    assert embedder.ask({"text": FOOD, "pooling": None, "truncate_inputs": True}).json["pooling"] == "mean"


def test_memory_goes_back_after_a_large_request(embedder: Runner) -> None:
    embedder.ask({"text": FOOD})
    before = embedder.memory()["Rss"]
    embedder.ask({"text": ["word " * 600] * 8})
    embedder.ask({"text": FOOD})
    assert embedder.memory()["Rss"] < before + 64


def test_its_tensors_are_reported(embedder: Runner) -> None:
    tensors = embedder.ready["tensors"]
    assert [(each["name"], each["dtype"], each["shape"]) for each in tensors["inputs"]] == [
        (name, "INT64", [-1, -1]) for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    assert tensors["outputs"] == [{"name": "last_hidden_state", "dtype": "FP32", "shape": [-1, -1, 384]}]
