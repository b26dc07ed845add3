"""langchain-cloudflare against a node: `python with_cloudflare.py URL`. It runs in the environment of requirements.lock.

Left out is what the client itself drops: tool calls of `astream`, and of any stream with endpoint_format="openai_compatible".
"""

import asyncio
import json
import sys
import urllib.request
from typing import Literal

from langchain_cloudflare import ChatCloudflareWorkersAI, CloudflareWorkersAIEmbeddings, CloudflareWorkersAIReranker
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

URL = sys.argv[1]
ACCOUNT = {"account_id": "local", "api_token": "any"}
QUESTION = "What is the capital of France? Answer in one sentence."
FORMATS = ("workers_ai", "openai_compatible")
CAPITAL = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}


@tool
def weather(city: Literal["Paris", "Rome"]) -> str:
    """Tells the weather of a city."""
    return f"It is sunny in {city}."


def chat(format="workers_ai", **more):
    address = {"base_url": f"{URL}/client/v4", "endpoint_format": format}
    return ChatCloudflareWorkersAI(
        **{**ACCOUNT, **address, "model": "@cf/meta/llama-3.2-1b-instruct", "temperature": 0, "max_tokens": 32, **more}
    )


def asks():
    for format in FORMATS:
        answer = chat(format).invoke(QUESTION)
        assert "Paris" in answer.content, answer
        assert answer.usage_metadata["input_tokens"] > 10 and answer.usage_metadata["output_tokens"] > 3
    assert len(chat(reject_if_busy=True, top_k=5, repetition_penalty=1.1, max_tokens=8).batch([QUESTION, "Say hi."])) == 2


def streams():
    for format in FORMATS:
        chunks = list(chat(format).stream(QUESTION))
        whole = sum(chunks[1:], chunks[0])
        assert len(chunks) > 5, "token by token"
        assert "Paris" in whole.content, whole
    assert whole.response_metadata["model_name"]


def calls_tools():
    messages = [HumanMessage("How is the weather in Paris?")]
    for format in FORMATS:
        answer = chat(format, max_tokens=64).bind_tools([weather], tool_choice=True).invoke(messages)
        (call,) = answer.tool_calls
        assert call["name"] == "weather" and call["args"]["city"] in ("Paris", "Rome") and call["id"], call
    assert chat(max_tokens=8).bind_tools([weather]).invoke([*messages, answer, weather.invoke(call)])
    chunks = list(chat(max_tokens=64).bind_tools([weather], tool_choice="any").stream(messages))
    assert sum(chunks[1:], chunks[0]).tool_calls[0]["args"].keys() == {"city"}, chunks


def answers_with_structure():
    for format in FORMATS:
        wanted = {"type": "json_schema", "json_schema": {"name": "capital", "schema": CAPITAL}}
        assert json.loads(chat(format, max_tokens=64).bind(response_format=wanted).invoke(QUESTION).content).keys() == {"city"}
    found = chat(max_tokens=100).with_structured_output(CAPITAL, method="json_mode").invoke(f"{QUESTION} Reply in JSON.")
    assert isinstance(found, dict), found


def embeds():
    vectors = CloudflareWorkersAIEmbeddings(**ACCOUNT, api_base_url=f"{URL}/client/v4/accounts", model_name="@cf/baai/bge-small-en-v1.5")
    assert [len(each) for each in vectors.embed_documents(["a\nb"] * 60)] == [384] * 60  # two requests of the client's own
    assert len(vectors.embed_query("A cat sleeps.")) == 384


async def does_it_all_async():
    for format in FORMATS:
        model = chat(format)
        assert "Paris" in (await model.ainvoke(QUESTION)).content
        assert "Paris" in "".join([chunk.content async for chunk in model.astream(QUESTION)])
        called = await chat(format, max_tokens=64).bind_tools([weather], tool_choice=True).ainvoke("How is the weather in Paris?")
        assert called.tool_calls[0]["args"].keys() == {"city"}, called
    vectors = CloudflareWorkersAIEmbeddings(**ACCOUNT, api_base_url=f"{URL}/client/v4/accounts", model_name="@cf/baai/bge-small-en-v1.5")
    assert len(await vectors.aembed_documents(["a", "b"])) == 2 and len(await vectors.aembed_query("a")) == 384


def reranks():
    reranker = CloudflareWorkersAIReranker(**ACCOUNT, api_base_url=f"{URL}/client/v4/accounts", model_name="@cf/baai/bge-reranker-base")
    found = reranker.rerank("small cat", ["The car needs petrol.", "A kitten is asleep."])
    assert [each.index for each in found] == [1, 0], found


def goes_through_a_gateway():
    for format in FORMATS:
        more = {"aig_request_timeout": 200_000, "aig_max_attempts": 2, "aig_retry_delay": 10, "aig_backoff": "linear"}
        answer = chat(format, ai_gateway="default", **more).invoke(QUESTION)
        assert "Paris" in answer.content, answer
    chunks = list(chat(ai_gateway="default").stream(QUESTION))
    assert "Paris" in sum(chunks[1:], chunks[0]).content, chunks
    vectors = {"model_name": "@cf/baai/bge-small-en-v1.5", "ai_gateway": "default"}
    assert len(CloudflareWorkersAIEmbeddings(**ACCOUNT, api_base_url=f"{URL}/client/v4/accounts", **vectors).embed_query("A cat.")) == 384
    with urllib.request.urlopen(f"{URL}/client/v4/accounts/local/ai-gateway/gateways/default/logs?success=true") as logs:
        assert [each["model_type"] for each in json.load(logs)["result"]] == ["text-embeddings", *["text-generation"] * 3]


for step in (goes_through_a_gateway, asks, streams, calls_tools, answers_with_structure, embeds, reranks):
    step()
    print(step.__name__)
asyncio.run(does_it_all_async())
print(does_it_all_async.__name__)
