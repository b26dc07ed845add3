"""Speech, pictures and translations in OpenAI's words, over a node that plays the runner."""

import base64
import json
from typing import Any

import pytest

from fornada.core.errors import Busy, RunnerDied
from tests.http.edge_server.conftest import Served
from tests.http.edge_server.test_edge_transcriptions import BOUNDARY, form
from tests.unit.edge.fakes import answer, items, refuse

VOICE, BRUSH, EARS = "@test/voice", "@test/brush", "@test/ears"
MP3 = b"\xff\xfb\x18\xc0" + bytes(40)
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt "
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


@pytest.fixture(autouse=True)
def models(edge: Served) -> None:
    edge.catalog.add(VOICE, task="text-to-speech")
    edge.catalog.add(BRUSH, task="text-to-image")
    edge.catalog.add(EARS, task="automatic-speech-recognition")
    edge.inference.behaviour = answer(MP3, type="audio/mpeg")


def speak(edge: Served, path: str = "/v1/audio/speech", **payload: Any):
    return edge.fetch("POST", path, payload={"model": VOICE, "input": "Hello", "voice": "alloy", **payload})


def draw(edge: Served, path: str = "/v1/images/generations", **payload: Any):
    return edge.fetch("POST", path, payload={"model": BRUSH, "prompt": "a cat", **payload})


def encoded(name: str, data: bytes) -> bytes:
    return json.dumps({name: base64.b64encode(data).decode()}).encode()


# ---- speech ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["/v1", "/client/v4/accounts/acc/ai/v1"])
@pytest.mark.parametrize("made", [answer(MP3, type="audio/mpeg"), answer(encoded("audio", MP3))])
def test_a_text_is_said_and_the_sound_comes_as_it_is(edge: Served, base: str, made: Any):
    edge.inference.behaviour = made
    response = speak(edge, f"{base}/audio/speech", response_format="mp3", speed=1.5, instructions="softly", lang="en")
    assert (response.status, response.headers["content-type"], response.body) == (200, "audio/mpeg", MP3)
    assert json.loads(edge.inference.last.body) == {
        "text": "Hello",
        "prompt": "Hello",
        "speaker": "alloy",
        "voice": "alloy",
        "encoding": "mp3",
        "speed": 1.5,
        "instructions": "softly",
        "lang": "en",
    }
    assert edge.inference.last.request.account == ("local" if base == "/v1" else "acc")


def test_formats_are_told_to_the_model_and_a_mismatch_is_refused(edge: Served):
    edge.inference.behaviour = answer(WAV, type="audio/wav")
    assert speak(edge, response_format="wav").headers["content-type"] == "audio/wav"
    told = json.loads(edge.inference.last.body)
    assert (told["encoding"], told["container"]) == ("linear16", "wav")
    assert speak(edge).headers["content-type"] == "audio/wav", "without a wish it is what the model makes"
    response = speak(edge, response_format="flac")
    assert (
        response.status == 400 and "response_format" in response.json()["error"]["message"] and "wav" in response.json()["error"]["message"]
    )
    edge.inference.behaviour = answer(b"\x01\x02" * 10, type="application/octet-stream")
    assert speak(edge, response_format="pcm").headers["content-type"] == "audio/pcm"


def test_sound_is_streamed_as_it_is_and_as_events(edge: Served):
    edge.inference.behaviour = items(MP3, b"more", type="audio/mpeg")
    response = speak(edge)
    assert (response.body, response.headers["content-type"]) == (MP3 + b"more", "audio/mpeg")
    for played in (items(MP3, b"more", type="audio/mpeg"), answer(MP3 + b"more", type="audio/mpeg")):
        edge.inference.behaviour = played
        events = [json.loads(line[6:]) for line in speak(edge, stream_format="sse").body.decode().splitlines() if line]
        assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == MP3 + b"more"
        assert events[-1]["type"] == "speech.audio.done" and events[-1]["usage"].keys() == {"input_tokens", "output_tokens", "total_tokens"}
    edge.inference.behaviour = items(error=RunnerDied("the runner died"), type="audio/mpeg")
    assert speak(edge).status == 502
    edge.inference.behaviour = items(WAV, type="audio/wav")
    assert speak(edge, response_format="mp3").status == 400


@pytest.mark.parametrize("body", [b'{"sound":1}', b'{"audio":5}', b'{"audio":"\xc3\xa4"}', b"[]"])
def test_what_is_no_sound_is_the_model_s_fault(edge: Served, body: bytes):
    edge.inference.behaviour = answer(body)
    assert (speak(edge).status, speak(edge).code) == (500, 3103)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"input": None}, "input"),
        ({"input": ""}, "/input"),
        ({"input": "x" * 4097}, "/input"),
        ({"input": 5}, "/input"),
        ({"voice": 5}, "/voice"),
        ({"response_format": "midi"}, "/response_format"),
        ({"speed": 9}, "/speed"),
        ({"stream_format": "x"}, "/stream_format"),
        ({"model": BRUSH}, "model"),
    ],
)
def test_a_bad_field_of_speech_is_named(edge: Served, given: dict, named: str):
    response = speak(edge, **given)
    assert response.status == 400 and named in response.json()["error"]["message"], response.body
    assert edge.inference.requests == []


def test_without_a_model_there_is_nothing_to_say(edge: Served):
    for response in (speak(edge, model="@cf/deepgram/aura-1"), draw(edge, model="@cf/black-forest-labs/flux-1-schnell")):
        assert (response.status, response.code) == (404, 5007)


# ---- pictures -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [answer(PNG, type="image/png"), answer(encoded("image", PNG))])
def test_pictures_are_drawn_one_after_the_other(edge: Served, made: Any):
    edge.inference.behaviour = made
    body = draw(edge, n=2, size="512x256", seed=7, quality="hd").json()
    assert [base64.b64decode(each["b64_json"]) for each in body["data"]] == [PNG, PNG] and body["created"] > 0
    told = [json.loads(each.body) for each in edge.inference.requests]
    assert told == [{"prompt": "a cat", "width": 512, "height": 256, "seed": seed, "quality": "hd"} for seed in (7, 8)]
    (picture,) = draw(edge, response_format="url", size="auto").json()["data"]
    assert picture["url"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert draw(edge, output_format="png").status == 200
    response = draw(edge, output_format="webp")
    assert response.status == 400 and "output_format" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"prompt": ""}, "/prompt"),
        ({"n": 0}, "/n"),
        ({"n": 11}, "/n"),
        ({"size": "big"}, "/size"),
        ({"size": "9999x512"}, "/width"),
        ({"response_format": "png"}, "/response_format"),
        ({"stream": True}, "/stream"),
        ({"seed": "x"}, "/seed"),
    ],
)
def test_a_bad_field_of_pictures_is_named(edge: Served, given: dict, named: str):
    response = draw(edge, **given)
    assert response.status == 400 and named in response.json()["error"]["message"], response.body
    assert edge.inference.requests == []


def test_a_refusal_and_what_is_no_picture_end_the_row(edge: Served):
    edge.inference.behaviour = refuse(Busy("full"))
    assert draw(edge, n=3).status == 429 and len(edge.inference.requests) == 1
    edge.inference.behaviour = answer(b'"x"')
    assert draw(edge, n=3).code == 3103
    edge.inference.behaviour = items(b"{}")
    assert draw(edge).code == 3103


# ---- translations ---------------------------------------------------------------------------------------------------------------


def test_a_recording_is_translated_by_a_model_that_can(edge: Served):
    edge.inference.behaviour = answer(b'{"text":"Good morning"}')
    body = form([("model", EARS), ("response_format", "verbose_json"), ("language", "de")])
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    response = edge.fetch("POST", "/v1/audio/translations", body, headers=headers)
    assert (response.json()["text"], response.json()["task"]) == ("Good morning", "translate")
    assert json.loads(edge.inference.last.pieces[""]) == {"task": "translate"}
