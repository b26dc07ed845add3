"""Whisper writes down what is said, whichever form the sound comes in, and knows when each word was said."""

import base64
import io
import json
import re
import wave
from pathlib import Path
from typing import Any

import pytest

from tests.models.conftest import MODELS
from tests.models.environments import environment, run
from tests.models.pictures import sample
from tests.models.runner import Runner

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]

FOLDER = MODELS / "whisper-tiny-en"
EXAMPLE = FOLDER / "example"
SAID = "Please open the window and close the door."
CONVERT = """
import sys, av
source, *targets = sys.argv[1:]
for target in targets:
    with av.open(source) as given, av.open(target, "w") as made:
        codec, rate = {"flac": ("flac", 48000), "ogg": ("libopus", 48000), "mp3": ("libmp3lame", 44100), "m4a": ("aac", 44100),
                       "wav": ("pcm_s24le", 22050)}[target.rpartition(".")[2]]
        stream = made.add_stream(codec, rate=rate, layout="stereo")
        resampler = av.AudioResampler(format=stream.format, layout="stereo", rate=rate, frame_size=stream.codec_context.frame_size or 1024)
        frames = [frame for each in given.decode(audio=0) for frame in resampler.resample(each)] + resampler.resample(None)
        for frame in frames:
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))
"""


def plain(text: str) -> str:
    """Words alone: where a comma or a full stop stands differs between processors."""
    return " ".join(re.findall(r"[a-z']+", text.lower()))


def sound() -> bytes:
    return (EXAMPLE / "request.wav").read_bytes()


def silence(seconds: float, *, rate: int = 16000, width: int = 2) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setparams((1, width, rate, 0, "NONE", ""))
        made.writeframes((b"\0" if width > 1 else b"\x80") * int(seconds * rate * width))
    return file.getvalue()


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The example in other containers, by their endings."""
    place = tmp_path_factory.mktemp("sound")
    targets = [place / f"sound.{ending}" for ending in ("flac", "ogg", "mp3", "m4a", "wav")]
    run(environment(FOLDER / "requirements.lock"), "-I", "-c", CONVERT, EXAMPLE / "request.wav", *targets)
    return {target.suffix[1:]: target.read_bytes() for target in targets}


def test_the_shipped_example_gives_the_shipped_answer(writer: Runner) -> None:
    told = writer.send(sound(), "audio/wav")
    answer, wanted = told.json, json.loads((EXAMPLE / "answer.json").read_text())
    assert plain(answer["text"]) == plain(wanted["text"]) == plain(SAID)
    assert answer["word_count"] == wanted["word_count"] == len(answer["words"]) == 8
    for word, other in zip(answer["words"], wanted["words"], strict=True):
        assert plain(word["word"]) == plain(other["word"])
        assert word["start"] == pytest.approx(other["start"], abs=0.15) and word["end"] == pytest.approx(other["end"], abs=0.15)
    assert told.head["usage"] == {"audio_seconds": pytest.approx(2.669, abs=0.01)}


def test_segments_and_captions_fit_the_words(writer: Runner) -> None:
    answer = writer.send(sound(), "audio/wav").json
    (segment,) = answer["segments"]
    assert segment["words"] == answer["words"] and segment["text"] == answer["text"]
    assert segment["start"] == pytest.approx(answer["words"][0]["start"], abs=0.5)
    assert segment["end"] == pytest.approx(answer["words"][-1]["end"], abs=0.5)
    assert all(name in segment for name in ("temperature", "avg_logprob", "compression_ratio", "no_speech_prob"))
    assert re.fullmatch(rf"WEBVTT\n\n00:00\.\d{{3}} --> 00:02\.\d{{3}}\n{re.escape(answer['text'])}", answer["vtt"])
    assert answer["transcription_info"]["language"] == "en" and answer["transcription_info"]["duration"] == pytest.approx(2.669, abs=0.01)


def test_a_recording_of_a_person_is_understood(writer: Runner) -> None:
    answer = writer.send(sample("speech.wav"), "audio/wav").json
    assert plain(answer["text"]) == plain("Send a text to Mike. I'll be home late tomorrow.")
    assert answer["word_count"] == 10


def test_every_form_of_the_input_gives_the_same_answer(writer: Runner) -> None:
    data = sound()
    bodies: list[tuple[bytes, str, list[tuple[str, int]]]] = [
        (data, "audio/wav", []),
        (data, "application/octet-stream", []),
        (json.dumps({"audio": list(data)}).encode(), "application/json", []),
        (json.dumps({"audio": base64.b64encode(data).decode(), "source_lang": "en", "vad_filter": None}).encode(), "application/json", []),
        (b'{"task":"transcribe"}' + data, "application/json", [("", 21), ("audio", len(data))]),
        (data, "application/json", [("audio", len(data))]),
    ]
    first, *rest = [answer.json for answer in writer.send_all(bodies)]
    assert plain(first["text"]) == plain(SAID) and all(answer == first for answer in rest)


@pytest.mark.parametrize("ending", ["flac", "ogg", "mp3", "m4a", "wav"])
def test_other_containers_rates_and_channels_are_decoded(writer: Runner, converted: dict[str, bytes], ending: str) -> None:
    answer = writer.send(converted[ending], "audio/anything").json
    assert plain(answer["text"]) == plain(SAID)
    assert answer["transcription_info"]["duration"] == pytest.approx(2.67, abs=0.15)


def test_options_are_taken(writer: Runner) -> None:
    options = {"beam_size": 1, "initial_prompt": "Windows and doors.", "no_speech_threshold": 0.9, "condition_on_previous_text": False}
    answer = writer.ask({"audio": base64.b64encode(sound()).decode(), "language": "en-GB", "prefix": None, **options}).json
    assert "window" in answer["text"]


def test_what_is_no_speech_can_be_left_out(writer: Runner) -> None:
    answer = writer.ask({"audio": base64.b64encode(silence(3)).decode(), "vad_filter": True}).json
    assert answer["text"] == "" and answer["words"] == [] and answer["segments"] == [] and answer["vtt"] == "WEBVTT"


def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(writer: Runner) -> None:
    assert "open the window" in plain(writer.send(sound()[:60_000], "audio/wav").json["text"])


@pytest.mark.parametrize(
    ("body", "type", "why"),
    [
        (b"", "audio/wav", "empty"),
        (b"nothing that sounds", "audio/wav", "container"),
        (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "audio/mpegurl", "container"),
        (b"RIFF\0\0\0\0WAVE", "audio/wav", "sound"),
        (b"fLaC" + b"\0" * 100, "audio/flac", "sound"),
        (silence(0), "audio/wav", "no sound"),
        (silence(1801, rate=8000, width=1), "audio/wav", "30 minutes"),
        (b"{}", "application/json", "audio"),
        (b'{"audio":[256]}', "application/json", "audio"),
        (b'{"audio":"%%%"}', "application/json", "audio"),
        (b"[]", "application/json", "audio"),
    ],
)
def test_what_is_no_sound_is_the_callers_fault(writer: Runner, body: bytes, type: str, why: str) -> None:
    answer = writer.send(body, type)
    assert answer.status == "bad_request" and why in answer.head["message"], answer.head


@pytest.mark.parametrize(
    "options",
    [
        {"language": "pt"},
        {"source_lang": "fr"},
        {"task": "translate"},
        {"beam_size": 11},
        {"beam_size": "5"},
        {"vad_filter": 1},
        {"prefix": 5},
    ],
)
def test_options_that_cannot_be_served_are_named(writer: Runner, options: dict[str, Any]) -> None:
    answer = writer.ask({"audio": base64.b64encode(sound()).decode(), **options})
    assert answer.status == "bad_request" and next(iter(options)) in answer.head["message"]


def test_its_files_lie_in_scratch_alone(writer: Runner) -> None:
    links = sorted(path.name for path in Path(writer.log.parent, "whisper").iterdir())
    assert links == ["config.json", "model.bin", "tokenizer.json", "vocabulary.txt"]
