"""OpenAI's and Cloudflare's own Python clients, and curl, with models that generate text, through a real node."""

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

import cloudflare
import openai
import pytest

from tests.bounds import bound
from tests.harness.bundles import archive
from tests.harness.node import Node

pytestmark = pytest.mark.clients

ACCOUNT = "023e105f4ecef8ad9ca31a8372d0c353"
# One model answers as Workers AI does, the other as OpenAI does; both repeat what they are told.
PARROT = """
def handle_request(request, context):
    given = request.body.json
    messages = given.get("messages") or [{"role": "user", "content": given["prompt"]}]
    last = messages[-1]
    text = "echo: " + last["content"]
    context.usage.update(input_tokens=len(messages), output_tokens=len(text.split()))
    if given.get("tools") and last["role"] != "tool":
        return {"response": "", "tool_calls": [{"name": given["tools"][0]["function"]["name"], "arguments": {"city": last["content"]}}]}
    if given.get("response_format"):
        text = '{"heard": "%s"}' % last["content"]
    if request.stream:
        return pieces(text, messages)
    return {"response": text}

def pieces(text, messages):
    for word in text.split(" "):
        yield {"response": word + " "}
"""
OPENAI_PARROT = """
def handle_request(request, context):
    given = request.body.json
    if given.get("fail"):
        return failing()
    text = given["prompt"] if "prompt" in given else given["messages"][-1]["content"]
    words = ("echo: " + text).split(" ")
    choices = range(given.get("n") or 1)
    usage = {"prompt_tokens": 1, "completion_tokens": len(words), "total_tokens": 1 + len(words)}
    frame = {"id": "chatcmpl-inner", "created": 1, "model": "inner"}
    if request.stream:
        return streamed(frame, words, choices, usage)
    logprobs = {"content": [{"token": words[0], "logprob": -0.5, "bytes": None, "top_logprobs": []}]} if given.get("logprobs") else None
    made = [{"index": i, "message": {"role": "assistant", "content": " ".join(words)}, "finish_reason": "stop", "logprobs": logprobs}
            for i in choices]
    return {**frame, "object": "chat.completion", "choices": made, "usage": usage}

def streamed(frame, words, choices, usage):
    frame = {**frame, "object": "chat.completion.chunk"}
    for index in choices:
        for word in words:
            yield {**frame, "choices": [{"index": index, "delta": {"content": word + " "}, "finish_reason": None}]}
        yield {**frame, "choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]}
    yield {**frame, "choices": [], "usage": usage}

def failing():
    yield {"response": "so far"}
    raise RuntimeError("broken")
"""
HEARER = """
def handle_request(request, context):
    sound = request.file("audio")
    words = [{"word": "heard", "start": 0.0, "end": 0.5}, {"word": str(len(sound)), "start": 0.5, "end": 1.0}]
    segments = [{"start": 0.0, "end": 1.0, "text": "heard %d" % len(sound), "words": words}]
    return {"text": "heard %d" % len(sound), "words": words, "segments": segments, "transcription_info": {"language": "en", "duration": 1.0}}
"""
ASKED: list[Any] = [{"role": "user", "content": "one two"}]
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@pytest.fixture
def client(node: Node) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="any", base_url=f"{node.url}/v1", timeout=bound(20), max_retries=0) as made:
        yield made


@pytest.fixture
async def later(node: Node) -> AsyncIterator[openai.AsyncOpenAI]:
    base = f"{node.url}/client/v4/accounts/{ACCOUNT}/ai/v1"
    async with openai.AsyncOpenAI(api_key="any", base_url=base, timeout=bound(20), max_retries=0) as made:
        yield made


def deployed(node: Node, name: str, code: str, task: str) -> str:
    node.deploy(name, archive({"model.toml": f'name = "{name}"\ntask = "{task}"\n', "model.py": code}))
    return name


@pytest.fixture
def parrot(node: Node, fresh_name) -> str:
    return deployed(node, str(fresh_name()), PARROT, "text-generation")


@pytest.fixture
def openai_parrot(node: Node, fresh_name) -> str:
    return deployed(node, str(fresh_name()), OPENAI_PARROT, "text-generation")


# ---- openai ---------------------------------------------------------------------------------------------------------------------


def test_openai_chats_whatever_the_model_s_own_way_is(client: openai.OpenAI, parrot: str, openai_parrot: str):
    for model in (parrot, openai_parrot):
        answer = client.chat.completions.create(model=model, messages=ASKED)
        assert answer.choices[0].message.content == "echo: one two" and answer.choices[0].finish_reason == "stop"
        assert answer.model == model and answer.usage and answer.usage.completion_tokens == 3
        parts: Any = [{"role": "user", "content": [{"type": "text", "text": "in parts"}]}]
        assert client.chat.completions.create(model=model, messages=parts).choices[0].message.content == "echo: in parts"
        chunks = list(client.chat.completions.create(model=model, messages=ASKED, stream=True, stream_options={"include_usage": True}))
        assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices).strip() == "echo: one two"
        assert chunks[-1].usage and chunks[-1].usage.completion_tokens == 3
        assert [each.choices[0].finish_reason for each in chunks if each.choices][-1] == "stop"


async def test_openai_async_and_streaming_at_cloudflare_s_address(later: openai.AsyncOpenAI, openai_parrot: str):
    answer = await later.chat.completions.create(model=openai_parrot, messages=ASKED, n=2, logprobs=True)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].logprobs and answer.choices[0].logprobs.content
    assert answer.choices[0].logprobs.content[0].logprob == -0.5
    texts = {0: "", 1: ""}
    async for chunk in await later.chat.completions.create(model=openai_parrot, messages=ASKED, n=2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert {text.strip() for text in texts.values()} == {"echo: one two"}


def test_openai_calls_tools_and_gives_their_results(client: openai.OpenAI, parrot: str):
    answer = client.chat.completions.create(model=parrot, messages=ASKED, tools=[WEATHER])
    assert answer.choices[0].finish_reason == "tool_calls" and answer.choices[0].message.tool_calls
    call = answer.choices[0].message.tool_calls[0]
    assert call.type == "function" and call.id and call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": "one two"}
    again: list[Any] = [*ASKED, answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    assert client.chat.completions.create(model=parrot, messages=again, tools=[WEATHER]).choices[0].message.content == "echo: sunny"
    other = client.chat.completions.create(model=parrot, messages=ASKED, tools=[WEATHER])
    assert other.choices[0].message.tool_calls and other.choices[0].message.tool_calls[0].id != call.id
    calls = [
        each.choices[0].delta.tool_calls
        for each in client.chat.completions.create(model=parrot, messages=ASKED, tools=[WEATHER], stream=True)
    ]
    (streamed,) = [each for each in calls if each]
    assert streamed[0].index == 0 and streamed[0].function and streamed[0].function.name == "weather"


def test_openai_asks_for_json(client: openai.OpenAI, parrot: str):
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "heard", "schema": {"type": "object"}, "strict": True}}
    answer = client.chat.completions.create(model=parrot, messages=ASKED, response_format=wanted)
    assert json.loads(answer.choices[0].message.content or "") == {"heard": "one two"}


def test_openai_completes_texts(client: openai.OpenAI, parrot: str, openai_parrot: str):
    for model in (parrot, openai_parrot):
        answer = client.completions.create(model=model, prompt="one two", max_tokens=5)
        assert answer.object == "text_completion" and answer.choices[0].text == "echo: one two"
        chunks = client.completions.create(model=model, prompt="one two", stream=True)
        assert "".join(each.choices[0].text for each in chunks if each.choices).strip() == "echo: one two"


def test_openai_raises_its_own_errors(client: openai.OpenAI, parrot: str, openai_parrot: str):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="no/such-model", messages=ASKED)
    assert unknown.value.code == "5007"
    with pytest.raises(openai.BadRequestError) as invalid:
        client.chat.completions.create(model=parrot, messages=[])
    assert "messages" in str(invalid.value)
    stream = client.chat.completions.create(model=openai_parrot, messages=ASKED, stream=True, extra_body={"fail": True})
    said = ""
    with pytest.raises(openai.APIError, match="broken"):
        for chunk in stream:
            said += chunk.choices[0].delta.content or ""
    assert said == "so far"


def test_openai_transcribes(client: openai.OpenAI, node: Node, fresh_name):
    model = deployed(node, str(fresh_name()), HEARER, "automatic-speech-recognition")
    file = ("a.wav", b"RIFF" + bytes(96))
    assert client.audio.transcriptions.create(model=model, file=file).text == "heard 100"
    plain: Any = client.audio.transcriptions.create(model=model, file=file, response_format="srt", language="en")
    assert plain == "1\n00:00:00,000 --> 00:00:01,000\nheard 100\n"
    verbose = client.audio.transcriptions.create(
        model=model, file=file, response_format="verbose_json", timestamp_granularities=["word", "segment"], temperature=0
    )
    assert float(verbose.duration) == 1.0 and verbose.words and verbose.words[0].word == "heard"
    assert verbose.segments and verbose.segments[0].text == "heard 100"
    events = list(client.audio.transcriptions.create(model=model, file=file, stream=True))
    assert events[-1].type == "transcript.text.done" and events[-1].text == "heard 100"


# ---- cloudflare and curl --------------------------------------------------------------------------------------------------------


def test_cloudflare_generates_text(node: Node, parrot: str, openai_parrot: str):
    with cloudflare.Cloudflare(api_token="any", base_url=f"{node.url}/client/v4", timeout=bound(20), max_retries=0) as client:
        for model in (parrot, openai_parrot):
            result: Any = client.ai.run(model, account_id=ACCOUNT, prompt="one two")
            assert result["response"] == "echo: one two" and "tool_calls" not in result
            result = client.ai.run(model, account_id=ACCOUNT, messages=ASKED, max_tokens=10)
            assert result["response"] == "echo: one two"
        called: Any = client.ai.run(parrot, account_id=ACCOUNT, messages=ASKED, tools=[WEATHER])
        assert called["tool_calls"][0]["arguments"] == {"city": "one two"}
        wanted: Any = {"type": "json_object"}
        found: Any = client.ai.run(parrot, account_id=ACCOUNT, messages=ASKED, response_format=wanted)
        assert found["response"] == {"heard": "one two"}
        with pytest.raises(cloudflare.BadRequestError):
            client.ai.run(parrot, account_id=ACCOUNT, messages=ASKED, prompt="both")  # type: ignore[call-overload]


@pytest.mark.skipif(not shutil.which("curl"), reason="curl isn't installed")
def test_curl_streams(node: Node, parrot: str):
    body = json.dumps({"messages": ASKED, "stream": True})
    said = curl(f"{node.url}/client/v4/accounts/{ACCOUNT}/ai/run/{parrot}", "-d", body)
    events = [line.removeprefix("data: ") for line in said.splitlines() if line]
    assert events[-1] == "[DONE]" and all(line.startswith("data: ") for line in said.splitlines() if line)
    assert "".join(json.loads(event)["response"] for event in events[:-1]).strip() == "echo: one two"
    assert json.loads(events[-2])["usage"]["total_tokens"] == 4
    answer = json.loads(curl(f"{node.url}/v1/chat/completions", "-d", json.dumps({"model": parrot, "messages": ASKED})))
    assert answer["choices"][0]["message"]["content"] == "echo: one two"


def curl(*words: str) -> str:
    done = subprocess.run(["curl", "-sS", *words], capture_output=True, text=True, timeout=bound(20), check=True)
    return done.stdout
