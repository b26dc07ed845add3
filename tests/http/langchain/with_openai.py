"""langchain-openai against a node: `python with_openai.py URL`. It runs in the environment of requirements.lock; each step says what it saw."""

import asyncio
import sys
from typing import Literal

import openai
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel

URL = sys.argv[1]
ADDRESS = {"base_url": f"{URL}/v1", "api_key": "any", "max_retries": 0}
CHAT = "@fornada/smollm2-135m-instruct"
VECTORS = "@fornada/minilm"
QUESTION = "What is the capital of France? Answer in one sentence."


class Capital(BaseModel):
    """A capital."""

    city: Literal["Paris", "Rome"]
    country: Literal["France", "Italy"]


@tool
def weather(city: Literal["Paris", "Rome"]) -> str:
    """Tells the weather of a city."""
    return f"It is sunny in {city}."


def chat(max_tokens=32, **more):
    return ChatOpenAI(**ADDRESS, model=CHAT, temperature=0, max_tokens=max_tokens, **more)


def asks():
    answer = chat().invoke(QUESTION)
    assert "Paris" in answer.content, answer
    assert answer.response_metadata["finish_reason"] == "stop" and answer.response_metadata["model_name"] == CHAT
    assert answer.usage_metadata["input_tokens"] > 10 and answer.usage_metadata["output_tokens"] > 3
    parts = [{"type": "text", "text": QUESTION}]
    assert chat().invoke([SystemMessage("Be short."), HumanMessage("Hi"), AIMessage("Hello"), HumanMessage(parts)]).content
    assert "Paris" not in chat().invoke(QUESTION, stop=["Paris"]).content
    logprobs = chat().bind(logprobs=True, top_logprobs=2).invoke("Hi").response_metadata["logprobs"]
    assert len(logprobs["content"][0]["top_logprobs"]) == 2


def streams():
    chunks = list(chat(stream_usage=True).stream(QUESTION))
    whole = sum(chunks[1:], chunks[0])
    assert len(chunks) > 5, "token by token"
    assert whole.content == chat().invoke(QUESTION).content
    assert whole.usage_metadata["output_tokens"] > 3 and whole.response_metadata["finish_reason"] == "stop"


def responds():
    newer = chat(use_responses_api=True)
    answer = newer.invoke([SystemMessage("Be short."), HumanMessage(QUESTION)])
    assert answer.text and answer.usage_metadata["output_tokens"] > 3, answer
    chunks = list(newer.stream(QUESTION))
    assert len(chunks) > 5, "token by token"
    assert sum(chunks[1:], chunks[0]).text == newer.invoke(QUESTION).text
    second = newer.invoke([HumanMessage("And of Italy?")], previous_response_id=answer.response_metadata["id"])
    assert second.usage_metadata["input_tokens"] > answer.usage_metadata["input_tokens"], second
    called = chat(64, use_responses_api=True).bind_tools([weather], tool_choice="weather").invoke("How is the weather in Paris?")
    assert called.tool_calls[0]["args"].keys() == {"city"}, called
    again = [HumanMessage("How is the weather in Paris?"), called, weather.invoke(called.tool_calls[0])]
    assert newer.bind_tools([weather]).invoke(again).response_metadata["status"] in ("completed", "incomplete")


def chains_and_batches():
    chain = ChatPromptTemplate.from_messages([("system", "Be short."), ("user", "{question}")]) | chat() | StrOutputParser()
    assert isinstance(chain.invoke({"question": QUESTION}), str)
    answers = chat().batch([QUESTION, "Say hi."])
    assert len(answers) == 2 and "Paris" in answers[0].content


def calls_tools():
    messages = [HumanMessage("How is the weather in Paris?")]
    answer = chat(64).bind_tools([weather], tool_choice="weather").invoke(messages)
    (call,) = answer.tool_calls
    assert call["name"] == "weather" and call["args"]["city"] in ("Paris", "Rome") and call["id"], call
    chunks = list(chat(64).bind_tools([weather], tool_choice="any").stream(messages))
    assert sum(chunks[1:], chunks[0]).tool_calls[0]["args"].keys() == {"city"}, chunks
    assert chat().bind_tools([weather]).invoke([*messages, answer, weather.invoke(call)]).response_metadata["finish_reason"]


def answers_with_structure():
    called = chat(64).with_structured_output(Capital, method="function_calling").invoke(QUESTION)
    assert isinstance(called, Capital), called
    found = chat(64).with_structured_output(Capital.model_json_schema(), method="json_schema").invoke(QUESTION)
    assert found.keys() == {"city", "country"}, found
    assert isinstance(list(chat(64).with_structured_output(Capital).stream(QUESTION))[-1], Capital)


def completes_texts():
    text = OpenAI(**ADDRESS, model=CHAT, temperature=0, max_tokens=8)
    assert len(text.batch(["The sky is", "Grass is"])) == 2
    assert "".join(text.stream("The sky is")) == text.invoke("The sky is") != ""


def embeds():
    vectors = OpenAIEmbeddings(**ADDRESS, model=VECTORS, check_embedding_ctx_length=False)
    cat, kitten, car = vectors.embed_documents(["A cat sleeps.", "A kitten is asleep.", "The car needs petrol."])
    assert len(cat) == 384 and near(cat, kitten) > near(cat, car)
    texts = [f"Text {number}" for number in range(150)]
    many = vectors.embed_documents(texts)  # sent at once: LangChain's own limit is a thousand
    assert len(many) == 150 and near(many[149], vectors.embed_query("Text 149")) > 0.999
    short = OpenAIEmbeddings(**ADDRESS, model=VECTORS, check_embedding_ctx_length=False, dimensions=64)
    assert len(short.embed_query("A cat sleeps.")) == 64


async def does_it_all_async():
    model = chat()
    assert "Paris" in (await model.ainvoke(QUESTION)).content
    assert "Paris" in "".join([chunk.content async for chunk in model.astream(QUESTION)])
    assert len(await model.abatch([QUESTION, "Say hi."])) == 2
    kinds = [event["event"] async for event in model.astream_events("Say hi.")]
    assert kinds[0] == "on_chat_model_start" and kinds[-1] == "on_chat_model_end"
    called = await chat(64).bind_tools([weather], tool_choice="any").ainvoke("How is the weather in Paris?")
    assert called.tool_calls[0]["args"].keys() == {"city"} and called.response_metadata["finish_reason"] == "tool_calls", called
    pieces = [piece async for piece in chat(64).bind_tools([weather], tool_choice="weather").astream("How is the weather in Paris?")]
    assert sum(pieces[1:], pieces[0]).tool_calls[0]["name"] == "weather", pieces
    assert isinstance(await chat(64).with_structured_output(Capital).ainvoke(QUESTION), Capital)
    both = await chat(64).with_structured_output(Capital, include_raw=True).ainvoke(QUESTION)
    assert isinstance(both["parsed"], Capital) and both["parsing_error"] is None, both
    vectors = OpenAIEmbeddings(**ADDRESS, model=VECTORS, check_embedding_ctx_length=False)
    assert len(await vectors.aembed_documents(["a", "b"])) == 2 and len(await vectors.aembed_query("a")) == 384


def raises_its_own_errors():
    try:
        ChatOpenAI(**ADDRESS, model="no/such-model").invoke("Hi")
    except openai.NotFoundError as error:
        said = str(error)
    assert "'no/such-model' does not exist" in said


def near(one, other):
    return sum(a * b for a, b in zip(one, other, strict=True))


for step in (
    asks,
    streams,
    responds,
    chains_and_batches,
    calls_tools,
    answers_with_structure,
    completes_texts,
    embeds,
    raises_its_own_errors,
):
    step()
    print(step.__name__)
asyncio.run(does_it_all_async())
print(does_it_all_async.__name__)
