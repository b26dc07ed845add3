"""Anthropic's own client, as its documentation uses it, through a real node."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import pydantic
import pytest

from tests.bounds import bound
from tests.harness.node import Node
from tests.http.test_text_clients import ACCOUNT, OPENAI_PARROT, PARROT, deployed

pytestmark = pytest.mark.clients

SAID: Any = [{"role": "user", "content": "one two"}]
WEATHER: Any = {
    "name": "weather",
    "description": "The weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class Heard(pydantic.BaseModel):
    heard: str


@pytest.fixture
def client(node: Node) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="any", base_url=node.url, timeout=bound(20), max_retries=0) as made:
        yield made


@pytest.fixture
async def later(node: Node) -> AsyncIterator[anthropic.AsyncAnthropic]:
    base = f"{node.url}/client/v4/accounts/{ACCOUNT}/ai"
    async with anthropic.AsyncAnthropic(api_key="any", base_url=base, timeout=bound(20), max_retries=0) as made:
        yield made


@pytest.fixture
def parrot(node: Node) -> str:
    return deployed(node, "@messages/parrot", PARROT, "text-generation")


@pytest.fixture
def openai_parrot(node: Node) -> str:
    return deployed(node, "@messages/openai-parrot", OPENAI_PARROT, "text-generation")


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text").strip()


def test_a_message_is_made_whole_and_streamed(client: anthropic.Anthropic, parrot: str, openai_parrot: str):
    for model in (parrot, openai_parrot):
        message = client.messages.create(max_tokens=64, system="You are a parrot.", messages=SAID, model=model)
        assert text_of(message) == "echo: one two" and message.stop_reason == "end_turn" and message.usage.output_tokens == 3
        kinds = [event.type for event in client.messages.create(max_tokens=64, messages=SAID, model=model, stream=True)]
        assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
        with client.messages.stream(max_tokens=64, messages=SAID, model=model) as stream:
            assert "".join(stream.text_stream).strip() == "echo: one two"
            final = stream.get_final_message()
        assert text_of(final) == "echo: one two" and final.usage.output_tokens == 3


async def test_async_at_cloudflare_s_address(later: anthropic.AsyncAnthropic, openai_parrot: str):
    assert text_of(await later.messages.create(max_tokens=64, messages=SAID, model=openai_parrot)) == "echo: one two"
    async with later.messages.stream(max_tokens=64, messages=SAID, model=openai_parrot) as stream:
        said = [text async for text in stream.text_stream]
    assert "".join(said).strip() == "echo: one two" and len(said) > 1


def test_a_tool_is_used_and_its_result_told(client: anthropic.Anthropic, parrot: str):
    asked: Any = [{"role": "user", "content": "Rome"}]
    message = client.messages.create(max_tokens=64, messages=asked, model=parrot, tools=[WEATHER])
    assert message.stop_reason == "tool_use"
    (use,) = [block for block in message.content if block.type == "tool_use"]
    assert use.name == "weather" and use.input == {"city": "Rome"}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}]}
    again: Any = [*asked, {"role": "assistant", "content": message.content}, result]
    assert text_of(client.messages.create(max_tokens=64, messages=again, model=parrot, tools=[WEATHER])) == "echo: sunny"
    with client.messages.stream(max_tokens=64, messages=asked, model=parrot, tools=[WEATHER]) as stream:
        (streamed,) = [block for block in stream.get_final_message().content if block.type == "tool_use"]
    assert streamed.input == {"city": "Rome"}


def test_an_answer_is_parsed_into_a_model_of_pydantic_s(client: anthropic.Anthropic, parrot: str):
    message = client.messages.parse(max_tokens=64, messages=SAID, model=parrot, output_format=Heard)
    assert message.parsed_output == Heard(heard="one two")


def test_models_are_listed_to_their_end(client: anthropic.Anthropic, parrot: str):
    (model,) = [each for each in client.models.list() if each.id == parrot]
    assert (model.type, model.display_name, model.lifecycle) == ("model", parrot, "active") and model.created_at.year > 2020
    assert client.models.retrieve(parrot).created_at == model.created_at


def test_refusals_and_failures_are_the_client_s_own_errors(client: anthropic.Anthropic, parrot: str, openai_parrot: str):
    with pytest.raises(anthropic.NotFoundError, match="no/such-model"):
        client.messages.create(max_tokens=64, messages=SAID, model="no/such-model")
    with pytest.raises(anthropic.BadRequestError, match="/max_tokens"):
        client.messages.create(max_tokens=0, messages=SAID, model=parrot)
    said = ""
    with (
        pytest.raises(anthropic.APIError, match="broken"),
        client.messages.stream(max_tokens=64, messages=SAID, model=openai_parrot, extra_body={"fail": True}) as stream,
    ):
        for text in stream.text_stream:
            said += text
    assert said == "so far"


def test_blocks_with_marks_of_a_cache_errors_of_tools_and_stop_sequences_are_taken(client: anthropic.Anthropic, parrot: str):
    cached: Any = {"cache_control": {"type": "ephemeral"}}
    system: Any = [{"type": "text", "text": "You are"}, {"type": "text", "text": "a parrot.", **cached}]
    asked: Any = [{"role": "user", "content": [{"type": "text", "text": "one two", **cached}]}]
    message = client.messages.create(max_tokens=64, system=system, messages=asked, model=parrot, stop_sequences=["END"])
    assert text_of(message) == "echo: one two" and (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.input_tokens == 2, "one system message"
    used: Any = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}}]}
    failed: Any = {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": [{"type": "text", "text": "no such city"}]}
    again = client.messages.create(
        max_tokens=64, messages=[*asked, used, {"role": "user", "content": [failed]}], model=parrot, tools=[WEATHER]
    )
    assert text_of(again).replace("\n", " ") == "echo: Error: no such city"


def test_tokens_are_not_counted_ahead(client: anthropic.Anthropic, parrot: str):
    with pytest.raises(anthropic.NotFoundError) as refused:
        client.messages.count_tokens(messages=SAID, model=parrot)
    assert refused.value.response.json()["type"] == "error"
