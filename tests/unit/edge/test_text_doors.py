"""Generated text on its way to OpenAI's callers: whole or in pieces, it is the same text, whatever a model makes of it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core.errors import BadRequest, ModelRaised
from fornada.edge.dialects.openai.text_request import TextRequest, read_chat, read_text
from fornada.edge.dialects.openai.transcripts import FORMATS, Segment, Transcript, Word, shown
from fornada.edge.json_bodies import fields_of
from fornada.edge.observer import Unobserved
from fornada.edge.tasks import task_of
from fornada.edge.text_gathered import Gathered
from fornada.edge.text_generation import ChatStream, Identity, NativeStream, TextStream, chat_completion, native_result, text_completion
from fornada.edge.text_sink import FAULTS
from fornada.edge.v1_door import model_of
from fornada.edge.validation import Contract

WHO = Identity("chatcmpl-abc", 1700000000, "@test/m")
CONTRACT = Contract(task_of("text-generation"), input=None, output=None, max_body=10**6, meter=Unobserved().meter("m"))
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OPENAI_ISH = st.fixed_dictionaries(
    {"object": st.sampled_from(["chat.completion", "chat.completion.chunk", "text_completion"])},
    optional={
        "usage": ANY_JSON,
        "choices": ANY_JSON
        | st.lists(
            ANY_JSON
            | st.fixed_dictionaries(
                {},
                optional={
                    name: ANY_JSON | st.fixed_dictionaries({}, optional={"content": ANY_JSON, "tool_calls": ANY_JSON})
                    for name in ("index", "delta", "message", "text", "finish_reason", "logprobs")
                },
            ),
            max_size=2,
        ),
    },
)
NATIVE_ISH = st.fixed_dictionaries({}, optional=dict.fromkeys(("response", "tool_calls", "usage", "finish_reason"), ANY_JSON))
WORDS = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6)


@given(WORDS, st.sampled_from(["own", "text", "chunk"]))
def test_a_text_is_the_same_whole_and_in_pieces(words: list[str], kind: str):
    gathered, stream, text = Gathered(WHO), ChatStream(WHO), TextStream(WHO)
    chunks: list[dict[str, Any]] = []
    pieces = ""
    for word in words:
        item = {
            "own": json.dumps({"response": word}),
            "text": json.dumps(word),
            "chunk": json.dumps({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": word}}]}),
        }[kind].encode()
        gathered.item(item)
        chunks += [json.loads(event) for event in stream.item(item)]
        pieces += "".join(json.loads(event)["choices"][0]["text"] for event in text.item(item))
    whole = json.loads(chat_completion(gathered.body(), WHO))
    said = whole["choices"][0]["message"]["content"]
    assert said == "".join(words) == "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == pieces
    assert json.loads(native_result(gathered.body()))["response"] == said
    assert json.loads(text_completion(gathered.body(), WHO))["choices"][0]["text"] == said
    assert (whole["id"], whole["model"], whole["choices"][0]["finish_reason"]) == (WHO.id, WHO.model, "stop")


@given(st.lists(OPENAI_ISH | NATIVE_ISH | ANY_JSON, max_size=3))
def test_whatever_a_model_answers_becomes_json_or_its_fault(values: list[Any]):
    streams: list[Any] = [ChatStream(WHO, include_usage=True), TextStream(WHO), NativeStream()]
    for stream in streams:
        try:
            for event in [event for value in values for event in stream.item(json.dumps(value).encode())] + stream.end():
                msgspec.json.decode(event)
        except FAULTS:
            pass  # told as ModelRaised: nothing else may escape
    gathered = Gathered(WHO)
    try:
        for value in values:
            gathered.item(json.dumps(value).encode())
            msgspec.json.decode(native_result(json.dumps(value).encode(), usage={"input_tokens": 1}))
            msgspec.json.decode(text_completion(json.dumps(value).encode(), WHO))
        msgspec.json.decode(chat_completion(gathered.body(), WHO))
    except FAULTS:
        pass


def test_what_is_no_json_is_the_model_s_fault():
    with pytest.raises(ModelRaised):
        Gathered(WHO).item(b"{")


def asked(text: str, read: Any = read_chat, *more: Any) -> TextRequest:
    fields = fields_of(text.encode())
    model_of(fields)
    return read(fields, CONTRACT, *more)


def test_a_request_keeps_what_it_doesn_t_know():
    found = asked('{"model":"m","messages":[{"role":"user","content":"x","name":"me"}],"top_k":null,"mine":{"a":[1.50]},"stream":true}')
    assert found == TextRequest(
        b'{"messages":[{"role":"user","content":"x","name":"me"}],"mine":{"a":[1.50]},"stream":true}', True, False, False
    )
    assert not asked('{"model":"m","messages":[{"role":"user"}],"stream":null}').stream
    both = asked('{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":3,"max_completion_tokens":9}')
    assert json.loads(both.body)["max_tokens"] == 3


@pytest.mark.parametrize("model", ["null", "5", '""', "[]"])
def test_a_model_has_a_name(model: str):
    with pytest.raises(BadRequest, match="model"):
        asked('{"messages":[{"role":"user"}],"model":' + model + "}")


def test_texts_may_be_several_where_the_engine_takes_them():
    several = '{"model":"m","prompt":["a","b"]}'
    assert json.loads(asked(several, read_text, "gguf").body)["prompt"] == ["a", "b"]
    for engine, text in (("python", several), ("gguf", '{"model":"m","prompt":["a",1]}'), ("gguf", '{"model":"m","prompt":[[1]]}')):
        with pytest.raises(BadRequest, match="prompt"):
            asked(text, read_text, engine)


@given(
    st.builds(
        Transcript,
        text=st.text(max_size=10),
        words=st.lists(st.builds(Word, word=st.text(max_size=3), start=st.floats(0, 9), end=st.floats(0, 9)), max_size=2),
        segments=st.lists(st.builds(Segment, start=st.floats(-1, 1e6), end=st.floats(0, 1e6), text=st.text(max_size=3)), max_size=2),
        vtt=st.none() | st.just("WEBVTT"),
    ),
    st.sampled_from(FORMATS),
)
def test_every_transcript_has_every_form(transcript: Transcript, format: str):
    body = shown(transcript, format, language="", words=True, segments=True, seconds=None)
    if "json" in format:
        assert msgspec.json.decode(body)["text"] == transcript.text
    if format == "vtt":
        assert body.startswith(b"WEBVTT")
    if format == "srt" and transcript.segments:
        assert body.count(b" --> ") >= len(transcript.segments)


def test_times_are_written_as_subtitles_want_them():
    transcript = Transcript("x", segments=[Segment(3661.0014, 3661.5, " x ")])
    for format, line in (("srt", b"01:01:01,001 --> 01:01:01,500\nx"), ("vtt", b"01:01:01.001 --> 01:01:01.500\nx")):
        assert line in shown(transcript, format, language="", words=False, segments=False, seconds=None)
