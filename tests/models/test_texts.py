"""What language a text is in, how it is meant, who is named in it, and which of several answers a question."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.models.conftest import MODELS
from tests.models.runner import Runner

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]

Shipped = Callable[[str], Runner]
APPLE = "Apple is looking at buying a startup in Lisbon for $1 billion, said Tim Cook on Monday."
CONTEXTS = [
    {"text": "A graphics card has its own memory."},
    {"text": "A pastel de nata is a Portuguese egg custard tart pastry, dusted with cinnamon."},
    {"text": "Lisbon is the capital of Portugal."},
]
QUERY = "What is a pastel de nata?"
SLUGS = ("langid", "vader", "en-core-web-sm", "minilm-reranker")


@pytest.mark.parametrize("slug", SLUGS)
def test_the_shipped_example_gives_the_shipped_answer(shipped: Shipped, slug: str) -> None:
    example = MODELS / slug / "example"
    answer = shipped(slug).send((example / "request.json").read_bytes(), "application/json").json
    assert near(answer, json.loads((example / "answer.json").read_text()))


def near(got: Any, wanted: Any) -> bool:
    """The same, each number within 0.02."""
    match wanted:
        case dict():
            return sorted(got) == sorted(wanted) and all(near(got[name], wanted[name]) for name in wanted)
        case list():
            return len(got) == len(wanted) and all(near(one, other) for one, other in zip(got, wanted, strict=True))
        case float():
            return bool(abs(got - wanted) <= 0.02)
        case _:
            return bool(got == wanted)


@pytest.mark.parametrize("slug", SLUGS)
@pytest.mark.parametrize("value", [{}, {"text": ""}, {"text": None}, {"text": 7}, [], "a", None])
def test_what_is_no_text_is_the_callers_fault(shipped: Shipped, slug: str, value: Any) -> None:
    answer = shipped(slug).ask(value)
    assert answer.status == "bad_request" and answer.head["message"]


@pytest.mark.parametrize("text", ["日本語の文", "🙂" * 50, "\u0000", " ", "a\ud800", "x" * 50_000, "but " * 2_500])
@pytest.mark.parametrize("slug", ["langid", "vader", "en-core-web-sm"])
def test_any_characters_get_an_answer(shipped: Shipped, slug: str, text: str) -> None:
    assert shipped(slug).ask({"text": text}).status == ("bad_request" if slug == "en-core-web-sm" and "\ud800" in text else "ok")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("O pastel de nata é um doce tradicional português.", "pt"),
        ("The weather in Lisbon is sunny today.", "en"),
        ("Das Wetter in Lissabon ist heute sonnig.", "de"),
        ("El zorro marrón rápido salta sobre el perro perezoso.", "es"),
        ("リスボンの天気は今日は晴れです。", "ja"),
    ],
)
def test_the_language_of_a_text_is_known(shipped: Shipped, text: str, language: str) -> None:
    answer = shipped("langid").ask({"text": text}).json
    scores = [entry["score"] for entry in answer]
    assert answer[0]["label"] == language and len(answer) == 5
    assert scores == sorted(scores, reverse=True) and sum(scores) <= 1.001


@pytest.mark.parametrize(
    ("text", "compound"),
    [
        ("This pizza is great, I love it!", 0.862),
        ("The worst service I have ever had, simply awful.", -0.796),
        ("The table has four legs.", 0.0),
    ],
)
def test_praise_is_told_from_blame(shipped: Shipped, text: str, compound: float) -> None:
    negative, positive = shipped("vader").ask({"text": text}).json
    assert (negative["label"], positive["label"]) == ("NEGATIVE", "POSITIVE")
    assert positive["score"] - negative["score"] == pytest.approx(compound, abs=0.06)
    assert positive["score"] + negative["score"] == pytest.approx(1)


def test_names_dates_and_amounts_are_found_where_they_stand(shipped: Shipped) -> None:
    answer = shipped("en-core-web-sm").ask({"text": APPLE}).json
    assert [(each["label"], each["text"]) for each in answer] == [
        ("ORG", "Apple"),
        ("GPE", "Lisbon"),
        ("MONEY", "$1 billion"),
        ("PERSON", "Tim Cook"),
        ("DATE", "Monday"),
    ]
    assert all(APPLE[each["start"] : each["end"]] == each["text"] for each in answer)


def test_places_are_counted_in_characters(shipped: Shipped) -> None:
    text = "🥧 Maria moved from Berlin to Paris in 2019."
    answer = shipped("en-core-web-sm").ask({"text": text}).json
    assert {"Berlin", "Paris"} <= {each["text"] for each in answer}
    assert all(text[each["start"] : each["end"]] == each["text"] for each in answer)
    assert shipped("en-core-web-sm").ask({"text": "The."}).json == []


def test_a_text_that_is_too_long_for_entities_is_refused(shipped: Shipped) -> None:
    assert shipped("en-core-web-sm").ask({"text": "a " * 60_000}).status == "bad_request"


def test_the_text_that_answers_comes_first(shipped: Shipped) -> None:
    response = shipped("minilm-reranker").ask({"query": QUERY, "contexts": CONTEXTS}).json["response"]
    assert [each["id"] for each in response] == [1, 2, 0]
    assert response[0]["score"] > response[1]["score"] + 0.1
    top = shipped("minilm-reranker").ask({"query": QUERY, "contexts": CONTEXTS, "top_k": 1}).json["response"]
    assert top == response[:1]
    many = shipped("minilm-reranker").ask({"query": QUERY, "contexts": CONTEXTS, "top_k": None}).json["response"]
    assert many == response


def test_reranking_is_the_cosine_of_the_embeddings(shipped: Shipped, embedder: Runner) -> None:
    texts = ["A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby.", "A man is riding a horse."]
    asked = {"query": texts[0], "contexts": [{"text": text} for text in texts[1:]]}
    answer = shipped("minilm-reranker").ask(asked)
    scores = {each["id"]: each["score"] for each in answer.json["response"]}
    assert scores == pytest.approx({0: 0.753, 1: -0.105, 2: 0.254}, abs=0.03)
    query, *rest = embedder.ask({"text": texts}).json["data"]
    cosines = [sum(a * b for a, b in zip(query, each, strict=True)) for each in rest]
    assert [scores[index] for index in range(3)] == pytest.approx(cosines, abs=0.01)
    assert answer.head["usage"]["input_tokens"] == embedder.ask({"text": texts}).head["usage"]["input_tokens"]


@pytest.mark.parametrize(
    "value",
    [
        {"query": QUERY},
        {"query": "", "contexts": CONTEXTS},
        {"query": QUERY, "contexts": []},
        {"query": QUERY, "contexts": ["a"]},
        {"query": QUERY, "contexts": [{"text": ""}]},
        {"query": QUERY, "contexts": CONTEXTS, "top_k": 0},
        {"query": "a\ud800", "contexts": CONTEXTS},
        {"query": QUERY, "contexts": CONTEXTS * 34},
    ],
)
def test_what_cant_be_ordered_is_the_callers_fault(shipped: Shipped, value: Any) -> None:
    assert shipped("minilm-reranker").ask(value).status == "bad_request"


def test_a_hundred_long_texts_are_ordered(shipped: Shipped) -> None:
    contexts = [{"text": "word " * (index % 7 + 1)} for index in range(99)] + [CONTEXTS[1]]
    response = shipped("minilm-reranker").ask({"query": QUERY, "contexts": contexts, "top_k": 1}).json["response"]
    assert response[0]["id"] == 99
