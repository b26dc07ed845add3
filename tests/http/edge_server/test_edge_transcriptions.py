"""OpenAI's transcriptions over a speech recognition model."""

import json

import pytest

from tests.http.edge_server.conftest import Served
from tests.unit.edge.fakes import answer, items

SAID = {
    "text": "Hello there.",
    "word_count": 2,
    "words": [{"word": "Hello", "start": 0.0, "end": 0.4}, {"word": "there.", "start": 0.5, "end": 1.25}],
    "segments": [{"start": 0.0, "end": 1.25, "text": "Hello there.", "temperature": 0.0, "avg_logprob": -0.2, "words": []}],
    "transcription_info": {"language": "en", "language_probability": 1, "duration": 1.5, "duration_after_vad": 1.5},
}
BOUNDARY = "bOuNdArY"


@pytest.fixture(autouse=True)
def models(edge: Served) -> None:
    edge.catalog.add("@test/ears", task="automatic-speech-recognition", aliases=["whisper-1"], serving={"max_body": "12MiB"})
    edge.inference.behaviour = answer(json.dumps(SAID).encode())


def form(fields: list[tuple[str, str]], file: bytes | None = b"RIFFsound") -> bytes:
    parts = [f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields]
    if file is not None:
        head = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\ncontent-type: audio/wav\r\n\r\n'
        parts.append(head.encode() + file + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def ask(edge: Served, *fields: tuple[str, str], base: str = "/v1", model: str = "@test/ears", file: bytes | None = b"RIFFsound"):
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    return edge.fetch("POST", f"{base}/audio/transcriptions", form([("model", model), *fields], file), headers=headers)


@pytest.mark.parametrize("base", ["/v1", "/client/v4/accounts/acc/ai/v1"])
def test_a_form_s_file_is_the_model_s_recording(edge: Served, base: str):
    body = ask(
        edge, ("language", "en"), ("prompt", "names"), ("temperature", "0.2"), ("invented", "x"), base=base, model="whisper-1"
    ).json()
    assert body == {"text": "Hello there.", "usage": {"type": "duration", "seconds": 2}}
    pieces = edge.inference.last.pieces
    assert json.loads(pieces[""]) == {"language": "en", "initial_prompt": "names", "temperature": 0.2}
    assert pieces["audio"] == b"RIFFsound"


def test_plain_formats(edge: Served):
    answers = {name: ask(edge, ("response_format", name)) for name in ("text", "srt", "vtt")}
    assert {each.headers["content-type"] for each in answers.values()} == {"text/plain; charset=utf-8"}
    assert answers["text"].body == b"Hello there.\n"
    assert answers["srt"].body == b"1\n00:00:00,000 --> 00:00:01,250\nHello there.\n"
    assert answers["vtt"].body == b"WEBVTT\n\n00:00:00.000 --> 00:00:01.250\nHello there.\n"
    edge.inference.behaviour = answer(b'{"text":"Hi","vtt":"WEBVTT\\n\\nits own"}')
    assert ask(edge, ("response_format", "vtt")).body == b"WEBVTT\n\nits own\n"
    assert ask(edge, ("response_format", "srt")).body == b"1\n00:00:00,000 --> 00:00:00,000\nHi\n"


def test_verbose_json_has_what_was_asked(edge: Served):
    body = ask(edge, ("response_format", "verbose_json")).json()
    assert (body["task"], body["language"], body["duration"], body["text"]) == ("transcribe", "en", 1.5, "Hello there.")
    (segment,) = body["segments"]
    assert segment["id"] == 0 and segment["end"] == 1.25 and segment["avg_logprob"] == -0.2 and "words" not in body
    both = [("timestamp_granularities[]", "word"), ("timestamp_granularities[]", "segment")]
    assert ask(edge, ("response_format", "verbose_json"), *both).json()["words"][1] == {"word": "there.", "start": 0.5, "end": 1.25}


def test_a_stream_says_it_in_openai_s_events(edge: Served):
    response = ask(edge, ("stream", "true"))
    assert response.headers["content-type"] == "text/event-stream" and b"transcript.text.done" in response.body


@pytest.mark.parametrize(
    ("fields", "file", "word"),
    [
        ([], None, "file"),
        ([], b"", "file"),
        ([("response_format", "xml")], b"x", "response_format"),
        ([("temperature", "hot")], b"x", "temperature"),
        ([("temperature", "nan")], b"x", "temperature"),
        ([("timestamp_granularities[]", "letter")], b"x", "timestamp_granularities"),
        ([("language", "en"), ("language", "fr")], b"x", "language"),
    ],
)
def test_what_can_t_be_is_refused_by_name(edge: Served, fields: list, file: bytes | None, word: str):
    response = ask(edge, *fields, file=file)
    assert (response.status, response.code) == (400, 5006) and word in response.message
    assert edge.inference.requests == []


def test_other_bodies_models_and_sizes_are_refused(edge: Served):
    response = edge.fetch("POST", "/v1/audio/transcriptions", payload={"model": "@test/ears"})
    assert (response.status, response.code) == (400, 5006) and "form" in response.message
    assert ask(edge, model="@no/such").status == 404
    assert "transcripts" in ask(edge, model="@test/a").message
    assert (ask(edge, file=b"x" * (12 * 2**20 + 1)).status, ask(edge, file=b"x" * 11 * 2**20).status) == (413, 200)


def test_a_model_that_answers_something_else_is_at_fault(edge: Served):
    for body in (b"{}", b"[]", b"nothing", b'{"text":"x","segments":[{"start":"now"}]}'):
        edge.inference.behaviour = answer(body)
        assert (ask(edge).status, ask(edge).code) == (500, 3103)
    edge.inference.behaviour = items(b"{}")
    assert ask(edge).code == 3103 and edge.inference.last.left
