"""Generated text that has to be JSON, at both doors, over a node that plays the runner."""

from typing import Any

import pytest

from tests.http.edge_server.conftest import Served
from tests.http.edge_server.test_edge_text import ASK, MODEL, USAGE, chat, completion
from tests.unit.edge.fakes import answer


@pytest.fixture(autouse=True)
def models(edge: Served) -> None:
    edge.catalog.add(MODEL, task="text-generation")
    edge.catalog.add("@test/openai", task="text-generation", settings={"output_family": "openai"})


def test_json_mode_answers_the_value(edge: Served):
    wanted: dict[str, Any] = {"response_format": {"type": "json_schema", "json_schema": {"type": "object"}}}
    edge.inference.behaviour = answer(completion('{"name":"India"}'))
    assert edge.run({**ASK, **wanted}, model=MODEL).result["response"] == {"name": "India"}
    assert edge.run({**ASK, "guided_json": {"type": "object"}}, model=MODEL).result["response"] == {"name": "India"}
    assert edge.run(ASK, model=MODEL).result["response"] == '{"name":"India"}'
    assert chat(edge, **ASK, **wanted).json()["choices"][0]["message"]["content"] == '{"name":"India"}'
    edge.inference.behaviour = answer(completion('{"name":"In', "length"))
    response = edge.run({**ASK, **wanted}, model=MODEL)
    assert (response.status, response.code) == (400, 5024) and "max_tokens" in response.message
    edge.inference.behaviour = answer(b'{"response":"[1,2]","mine":1}', usage={"input_tokens": 3, "output_tokens": 2})
    response = edge.run({**ASK, **wanted}, model=MODEL)
    assert (response.status, response.code) == (400, 5024) and "schema" in response.message
    assert edge.run({**ASK, "guided_json": {"type": "array"}}, model=MODEL).result == {"response": [1, 2], "mine": 1, "usage": USAGE}
    edge.inference.behaviour = answer(b'{"response":"a text","usage":{"mine":1}}')
    assert edge.run(ASK, model=MODEL).result == {"response": "a text", "usage": {"mine": 1}}
    assert edge.run({**ASK, **wanted}, model=MODEL).code == 5024


def test_a_conversation_s_answer_is_what_the_schema_says_or_an_error_that_says_where_not(edge: Served):
    def format(**more: Any) -> Any:
        schema = {"type": "object", "properties": {"age": {"type": "integer", "multipleOf": 7}}}
        return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, **more}}

    edge.inference.behaviour = answer(completion('{"age":14}'))
    assert chat(edge, **ASK, response_format=format(strict=True)).json()["choices"][0]["message"]["content"] == '{"age":14}'
    edge.inference.behaviour = answer(completion('{"age":15}'))
    refused = chat(edge, **ASK, response_format=format())
    assert (refused.status, refused.code) == (400, 5024) and "/age" in refused.json()["error"]["message"]
    for let_through in (format(strict=False), {"type": "json_object"}, {"type": "text"}, None):
        assert chat(edge, **ASK, response_format=let_through).status == 200
    assert edge.run({**ASK, "response_format": format()}, model="@test/openai").code == 5024
    edge.inference.behaviour = answer(completion('{"age":1', "length"))
    assert chat(edge, **ASK, response_format=format()).json()["choices"][0]["finish_reason"] == "length", "who cuts it knows"


SEVENS = {"type": "object", "properties": {"age": {"type": "integer", "multipleOf": 7}}}
HI = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("route", "request_"),
    [
        ("responses", {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "a", "schema": SEVENS}}}),
        ("messages", {"messages": HI, "max_tokens": 9, "output_config": {"format": {"type": "json_schema", "schema": SEVENS}}}),
    ],
)
def test_so_are_a_response_and_a_message(edge: Served, route: str, request_: dict[str, Any]):
    edge.inference.behaviour = answer(completion('{"age":14}'))
    assert chat(edge, route=route, **request_).status == 200
    edge.inference.behaviour = answer(completion('{"age":15}'))
    refused = chat(edge, route=route, **request_)
    assert (refused.status, refused.code) == (400, 5024) and "/age" in refused.json()["error"]["message"]
    edge.inference.behaviour = answer(completion('{"age":1', "length"))
    assert chat(edge, route=route, **request_).status == 200
    edge.inference.behaviour = answer(b'"no object"')
    assert chat(edge, route=route, **request_).status == 200, "a model that answers in its own way is believed"
