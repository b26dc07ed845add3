"""The catalogue's chat and speech models with OpenAI's client, as a newcomer would use them."""

import json
import math
from pathlib import Path
from typing import Any, Literal

import anthropic
import httpx
import openai
import pydantic
import pytest

import fornada.models
from tests.harness.adapters import FILE_NAMES, config, form, noise
from tests.harness.built import BuiltNode
from tests.harness.fixtures import StartNode
from tests.harness.likeness import unlike

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]

MODELS = Path(fornada.models.__path__[0])
CHAT = "@fornada/smollm2-135m-instruct"
EARS = "@fornada/whisper-tiny-en"
VECTORS = "@fornada/minilm"
ACCOUNT = "local"
FIRST_S = 400
"""An environment of a hundred megabytes may be built on the way."""
ASKED: list[Any] = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]


class Capital(pydantic.BaseModel):
    city: Literal["Paris", "Rome"]


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(
        api_key="any", base_url=f"{url}/v1", timeout=FIRST_S, max_retries=0, default_headers={"x-timeout-ms": str(FIRST_S * 1000)}
    )


def test_smollm2_chats_streams_obeys_a_schema_and_calls_a_tool(new_node: StartNode):
    node = new_node(kind=BuiltNode, models=(CHAT,)).start()
    with client_of(node.url) as client:
        answer = client.chat.completions.create(model=CHAT, messages=ASKED, temperature=0, max_tokens=24)
        assert "Paris" in (answer.choices[0].message.content or "") and answer.usage and answer.usage.prompt_tokens > 10
        usual: dict[str, Any] = {"model": CHAT, "messages": ASKED, "temperature": 0, "max_tokens": 24}
        chunks = list(client.chat.completions.create(**usual, stream=True, stream_options={"include_usage": True}))
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert said == answer.choices[0].message.content and chunks[-1].usage == answer.usage
        assert len(chunks) > 5, "token by token"
        schema = {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        }
        wanted: Any = {"type": "json_schema", "json_schema": {"name": "capital", "schema": schema}}
        found = client.chat.completions.create(**usual, response_format=wanted).choices[0].message.content
        assert json.loads(found or "").keys() == {"city"}
        tool: Any = {"type": "function", "function": {"name": "capital_of", "parameters": schema}}
        forced = client.chat.completions.create(**{**usual, "max_tokens": 60}, tools=[tool], tool_choice="required").choices[0]
        assert forced.finish_reason == "tool_calls" and forced.message.tool_calls and forced.message.tool_calls[0].type == "function"
        assert forced.message.tool_calls[0].function.name == "capital_of"
        assert json.loads(forced.message.tool_calls[0].function.arguments).keys() == {"city"}
        both = client.completions.create(model=CHAT, prompt=["The sky is", "Grass is"], max_tokens=3, n=2, temperature=0)
        assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    native = node.ask(CHAT, {"messages": ASKED, "temperature": 0, "max_tokens": 24}, timeout_s=60)
    assert native["response"] == said and native["usage"]["total_tokens"] == answer.usage.total_tokens
    value = node.ask(
        CHAT, {"messages": ASKED, "max_tokens": 24, "response_format": {"type": "json_schema", "json_schema": schema}}, timeout_s=60
    )
    assert value["response"]["city"] in ("Paris", "Rome")
    events = node.stream(CHAT, {"messages": ASKED, "temperature": 0, "max_tokens": 24}, timeout_s=60)
    assert events.done and "".join(item["response"] for item in events.items) == said
    counts = {name: native["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    assert not unlike(events.items[-1]["usage"], counts)
    assert node.stop() == 0


def test_smollm2_responds_and_goes_on_and_speaks_to_anthropic_s_client(new_node: StartNode):
    node = new_node(kind=BuiltNode, models=(CHAT,)).start()
    question = "What is the capital of France? Answer in one sentence."
    with client_of(node.url) as client:
        first = client.responses.create(model=CHAT, input=question, temperature=0, max_output_tokens=24)
        assert "Paris" in first.output_text and first.usage and first.usage.input_tokens > 10
        with client.responses.stream(model=CHAT, input=question, temperature=0, max_output_tokens=24) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        assert final.output_text == first.output_text and kinds.count("response.output_text.delta") > 5, "token by token"
        second = client.responses.create(
            model=CHAT, previous_response_id=first.id, input="And of Italy?", temperature=0, max_output_tokens=24
        )
        assert second.usage and second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
        cut = client.responses.create(model=CHAT, input="Count from one to a hundred.", max_output_tokens=3)
        assert cut.status == "incomplete" and cut.incomplete_details and cut.incomplete_details.reason == "max_output_tokens"
        capital = client.responses.parse(model=CHAT, input=question, text_format=Capital, max_output_tokens=24).output_parsed
        assert isinstance(capital, Capital)
    with anthropic.Anthropic(api_key="any", base_url=node.url, timeout=FIRST_S, max_retries=0) as other:
        usual: dict[str, Any] = {"model": CHAT, "max_tokens": 24, "messages": [{"role": "user", "content": question}]}
        usual["extra_body"] = {"temperature": 0}
        message = other.messages.create(**usual)
        assert message.content[0].type == "text" and message.content[0].text == first.output_text
        with other.messages.stream(**usual) as streamed:
            assert "".join(streamed.text_stream) == first.output_text
            assert streamed.get_final_message().usage.output_tokens == message.usage.output_tokens
        tool: Any = {
            "name": "capital_of",
            "input_schema": {
                "type": "object",
                "properties": {"city": {"enum": ["Paris", "Rome"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        }
        used = other.messages.create(**{**usual, "max_tokens": 60}, tools=[tool], tool_choice={"type": "any"})
        assert used.stop_reason == "tool_use" and used.content[-1].type == "tool_use" and used.content[-1].input.keys() == {"city"}


def test_a_fine_tune_is_applied_for_its_account_alone(new_node: StartNode):
    node = new_node(kind=BuiltNode, models=(CHAT,)).start()
    base = f"/client/v4/accounts/{ACCOUNT}/ai/finetunes"
    id = node.fetch("POST", base, payload={"model": "@cf/meta/llama-3.2-1b-instruct", "name": "odd"}).json()["result"]["id"]
    made = noise(module="mlp.down_proj", layers=30, out=576, inner=1536, rank=4, strength=2.0)
    for name, data in zip(FILE_NAMES, (config(r=4), made), strict=True):
        body, kind = form(name, data)
        assert node.fetch("POST", f"{base}/{id}/finetune-assets", body, headers={"content-type": kind}).json()["success"]
    asked = {"messages": ASKED, "temperature": 0, "max_tokens": 12}
    plain = node.ask(CHAT, asked, timeout_s=FIRST_S)["response"]
    tuned = node.ask(CHAT, {**asked, "lora": "odd"}, timeout_s=60)["response"]
    assert "Paris" in plain and tuned != plain and node.ask(CHAT, asked, timeout_s=60)["response"] == plain
    with client_of(node.url) as client:
        again = client.chat.completions.create(model=CHAT, messages=ASKED, temperature=0, max_tokens=12, extra_body={"lora": id})
        assert again.choices[0].message.content == tuned
        with pytest.raises(openai.BadRequestError, match="lora"):  # nobody looks there whose it is
            client.responses.create(model=CHAT, input="Hi", extra_body={"lora": id})
    other = node.fetch("POST", f"/client/v4/accounts/other/ai/run/{CHAT}", payload={**asked, "lora": id})
    assert other.status == 404, other.body
    node.fetch("DELETE", f"{base}/{id}")
    gone = node.fetch("POST", f"/client/v4/accounts/{ACCOUNT}/ai/run/{CHAT}", payload={**asked, "lora": id})
    assert gone.status == 404 and node.ask(CHAT, asked, timeout_s=60)["response"] == plain
    assert node.stop() == 0


def test_minilm_embeds_in_both_encodings_cut_and_counted(new_node: StartNode):
    node = new_node(kind=BuiltNode, models=(VECTORS,)).start()
    texts = ["A cat sleeps.", "The car needs petrol."]
    with client_of(node.url) as client:
        usual = client.embeddings.create(model=VECTORS, input=texts)  # base64 on the wire
        floats = client.embeddings.create(model=VECTORS, input=texts, encoding_format="float")
        for one, other in zip(usual.data, floats.data, strict=True):
            assert one.index == other.index and len(one.embedding) == 384
            assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
        assert usual.usage == floats.usage and usual.usage.prompt_tokens == usual.usage.total_tokens >= 8
        assert client.embeddings.create(model=VECTORS, input=texts[0]).usage.prompt_tokens < usual.usage.prompt_tokens
        (short,) = client.embeddings.create(model=VECTORS, input=texts[0], dimensions=64).data
        assert len(short.embedding) == 64 and math.hypot(*short.embedding) == pytest.approx(1, abs=1e-3)
        with pytest.raises(openai.BadRequestError, match="tokens"):
            client.embeddings.create(model=VECTORS, input=[[101, 102]])
        with pytest.raises(openai.BadRequestError, match="dimensions"):
            client.embeddings.create(model=VECTORS, input="x", dimensions=385)
    assert node.stop() == 0


def test_whisper_writes_down_its_example(new_node: StartNode):
    node = new_node(kind=BuiltNode, models=(EARS,)).start()
    folder = MODELS / "whisper-tiny-en" / "example"
    wanted = json.loads((folder / "answer.json").read_text())
    file = ("request.wav", (folder / "request.wav").read_bytes())
    with client_of(node.url) as client:
        assert client.audio.transcriptions.create(model=EARS, file=file).text == wanted["text"]
        verbose = client.audio.transcriptions.create(
            model=EARS, file=file, response_format="verbose_json", timestamp_granularities=["word", "segment"], language="en", temperature=0
        )
        assert verbose.text == wanted["text"] and verbose.words and len(verbose.words) == wanted["word_count"]
        assert verbose.segments and verbose.segments[0].start < verbose.segments[0].end
        subtitles: Any = client.audio.transcriptions.create(model=EARS, file=file, response_format="vtt")
        assert subtitles.startswith("WEBVTT\n\n00:")
    form = {"model": "@cf/openai/whisper", "response_format": "text"}
    answer = httpx.post(f"{node.url}/client/v4/accounts/{ACCOUNT}/ai/v1/audio/transcriptions", data=form, files={"file": file}, timeout=60)
    assert answer.text.strip() == wanted["text"]
    assert node.stop() == 0
