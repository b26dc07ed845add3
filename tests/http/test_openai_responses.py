"""OpenAI's Responses API by OpenAI's own client, as its documentation uses it, through a real node."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pydantic
import pytest

from tests.bounds import bound
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.http.test_text_clients import ACCOUNT, OPENAI_PARROT, PARROT, deployed

pytestmark = pytest.mark.clients

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False},
    "strict": True,
}
REMEMBERING = """
def handle_request(request, context):
    said = [message["role"][0] + ":" + message["content"] for message in request.body.json["messages"]]
    return {"response": " ".join(said)}
"""


class Heard(pydantic.BaseModel):
    heard: str


@pytest.fixture
def client(node: Node) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="any", base_url=f"{node.url}/v1", timeout=bound(20), max_retries=0) as made:
        yield made


@pytest.fixture
async def later(node: Node) -> AsyncIterator[openai.AsyncOpenAI]:
    base = f"{node.url}/client/v4/accounts/{ACCOUNT}/ai/v1"
    async with openai.AsyncOpenAI(api_key="any", base_url=base, timeout=bound(20), max_retries=0) as made:
        yield made


@pytest.fixture
def parrot(node: Node) -> str:
    return deployed(node, "@responses/parrot", PARROT, "text-generation")


@pytest.fixture
def openai_parrot(node: Node) -> str:
    return deployed(node, "@responses/openai-parrot", OPENAI_PARROT, "text-generation")


def test_a_text_and_messages_are_answered(client: openai.OpenAI, parrot: str, openai_parrot: str):
    for model in (parrot, openai_parrot):
        response = client.responses.create(model=model, instructions="You are a parrot.", input="one two")
        assert response.output_text == "echo: one two" and response.status == "completed"
        assert response.usage and response.usage.output_tokens == 3
        parts: Any = [{"role": "user", "content": [{"type": "input_text", "text": "in parts"}]}]
        assert client.responses.create(model=model, input=parts).output_text == "echo: in parts"


def test_events_are_streamed_both_ways(client: openai.OpenAI, parrot: str, openai_parrot: str):
    for model in (parrot, openai_parrot):
        events = list(client.responses.create(model=model, input="one two", stream=True))
        assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta").strip() == "echo: one two"
        with client.responses.stream(model=model, input="one two") as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    assert "echo: one two ".startswith(event.snapshot)
            assert stream.get_final_response().output_text.strip() == "echo: one two"


async def test_async_at_cloudflare_s_address(later: openai.AsyncOpenAI, openai_parrot: str):
    assert (await later.responses.create(model=openai_parrot, input="one two")).output_text == "echo: one two"
    said = ""
    async for event in await later.responses.create(model=openai_parrot, input="one two", stream=True):
        if event.type == "response.output_text.delta":
            said += event.delta
    assert said.strip() == "echo: one two"


def test_a_function_is_called_and_its_result_told(client: openai.OpenAI, parrot: str):
    items: list[Any] = [{"role": "user", "content": "Paris"}]
    response = client.responses.create(model=parrot, tools=[WEATHER], input=items)
    items += response.output
    for item in response.output:
        assert item.type == "function_call" and item.name == "weather"
        assert json.loads(item.arguments) == {"city": "Paris"}
        items.append({"type": "function_call_output", "call_id": item.call_id, "output": json.dumps({"sky": "blue"})})
    assert client.responses.create(model=parrot, tools=[WEATHER], input=items).output_text == 'echo: {"sky": "blue"}'
    with client.responses.stream(model=parrot, input="Paris", tools=[WEATHER]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.function_call_arguments.delta" in kinds and "response.function_call_arguments.done" in kinds
    assert final.output[0].type == "function_call" and json.loads(final.output[0].arguments) == {"city": "Paris"}


def test_an_answer_is_parsed_into_a_model_of_pydantic_s(client: openai.OpenAI, parrot: str):
    response = client.responses.parse(model=parrot, input="one two", text_format=Heard)
    assert response.output_parsed == Heard(heard="one two")
    with client.responses.stream(model=parrot, input="one two", text_format=Heard) as stream:
        stream.until_done()
        assert stream.get_final_response().output_parsed == Heard(heard="one two")


def test_a_conversation_goes_on_by_the_id_of_the_last_response(client: openai.OpenAI, node: Node):
    model = deployed(node, "@responses/remembering", REMEMBERING, "text-generation")
    first = client.responses.create(model=model, input="tell me a joke")
    second = client.responses.create(model=model, previous_response_id=first.id, input=[{"role": "user", "content": "explain it"}])
    assert second.output_text == "u:tell me a joke a:u:tell me a joke u:explain it"
    assert client.responses.retrieve(second.id).output_text == second.output_text
    assert [item.id for item in client.responses.input_items.list(second.id)] != []
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    third = client.responses.create(model=model, previous_response_id=second.id, input="more")
    assert third.output_text.endswith("u:more") and third.output_text.startswith("u:tell me a joke"), "each holds its whole conversation"
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        client.responses.create(model=model, previous_response_id=first.id, input="again")


def test_refusals_and_failures_are_the_client_s_own_errors(client: openai.OpenAI, parrot: str, openai_parrot: str):
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="no/such-model", input="x")
    with pytest.raises(openai.BadRequestError, match="/tools/0"):
        client.responses.create(model=parrot, input="x", tools=[{"type": "web_search"}])
    told: list[str] = []
    with contextlib.suppress(openai.APIError):
        told.extend(event.type for event in client.responses.create(model=openai_parrot, input="x", stream=True, extra_body={"fail": True}))
    assert "response.output_text.delta" in told and "response.failed" in told and "response.completed" not in told


def test_a_conversation_outlives_the_node(new_node: StartNode):
    node = new_node().start()
    model = deployed(node, "@responses/remembering", REMEMBERING, "text-generation")
    with openai.OpenAI(api_key="any", base_url=f"{node.url}/v1", timeout=bound(30), max_retries=0) as client:
        first = client.responses.create(model=model, input="one")
    node.kill()
    node.start()
    with openai.OpenAI(api_key="any", base_url=f"{node.url}/v1", timeout=bound(30), max_retries=0) as client:
        assert client.responses.create(model=model, input="two", previous_response_id=first.id).output_text == "u:one a:u:one u:two"
    assert node.stop() == 0
