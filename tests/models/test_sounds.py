"""YAMNet says what is heard, whatever the rate, the channels and the size of a sample."""

import base64
import io
import json
import struct
import wave
from collections.abc import Callable

import numpy as np
import pytest

from tests.models.conftest import MODELS
from tests.models.pictures import sample
from tests.models.runner import Runner

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLE = MODELS / "yamnet" / "example"


@pytest.fixture
def ear(shipped: Callable[[str], Runner]) -> Runner:
    return shipped("yamnet")


def recording(samples: np.ndarray, rate: int = 16000, *, width: int = 2, channels: int = 1) -> bytes:
    """A WAV file of numbers in -1..1, the same on all channels."""
    whole = np.clip(np.rint(samples * (2 ** (8 * width - 1) - 1)), -(2 ** (8 * width - 1)), 2 ** (8 * width - 1) - 1).astype("<i4")
    data = (whole + 128).astype(np.uint8).tobytes() if width == 1 else whole.view(np.uint8).reshape(-1, 4)[:, :width].tobytes()
    frames = b"".join(data[place : place + width] * channels for place in range(0, len(data), width))
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(width)
        out.setframerate(rate)
        out.writeframes(frames)
    return file.getvalue()


def sine(rate: int = 16000, hertz: float = 440, seconds: float = 1.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)


def best(runner: Runner, raw: bytes) -> dict:
    answer = runner.send(raw, "audio/wav").json
    scores = [entry["score"] for entry in answer]
    assert len(answer) == 5 and scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
    return answer[0]


def test_the_shipped_example_gives_the_shipped_answer(ear: Runner) -> None:
    wanted = json.loads((EXAMPLE / "answer.json").read_text())[0]
    got = best(ear, (EXAMPLE / "request.wav").read_bytes())
    assert got["label"] == wanted["label"] == "Sine wave" and got["score"] == pytest.approx(wanted["score"], abs=0.05)


def test_speech_silence_and_noise_are_told_apart(ear: Runner) -> None:
    silence = best(ear, recording(np.zeros(20000)))
    assert silence["label"] == "Silence" and silence["score"] == pytest.approx(0.74, abs=0.1)
    noise = best(ear, recording(np.random.default_rng(5).uniform(-0.5, 0.5, 32000)))
    assert noise["label"] in ("Static", "White noise", "Noise") and noise["score"] > 0.3
    speech = best(ear, sample("speech.wav"))
    assert speech["label"] == "Speech" and speech["score"] > 0.9


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 96000, 12345])
def test_a_recording_of_any_rate_is_heard_at_its_pitch(ear: Runner, rate: int) -> None:
    found = best(ear, recording(sine(rate), rate))
    assert found["label"] == "Sine wave" and found["score"] > 0.9


@pytest.mark.parametrize(("width", "channels"), [(1, 1), (2, 2), (3, 1), (4, 3)])
def test_samples_and_channels_of_any_size_are_read(ear: Runner, width: int, channels: int) -> None:
    found = best(ear, recording(sine(), width=width, channels=channels))
    assert found["label"] == "Sine wave" and found["score"] > (0.9 if width > 1 else 0.2)  # 8 bits hiss


def test_what_is_too_high_for_the_new_rate_is_gone_and_not_folded_down(ear: Runner) -> None:
    assert best(ear, recording(sine(48000, hertz=15000), 48000))["label"] == "Silence"


def test_every_form_of_the_same_recording_gives_the_same_answer(ear: Runner) -> None:
    raw = recording(sine(seconds=0.3))
    answer = ear.send(raw, "audio/wav").json
    text = base64.b64encode(raw).decode()
    for audio in (list(raw), text, f"data:audio/wav;base64,{text}"):
        assert ear.ask({"audio": audio}).json == answer
    assert ear.send(raw, "audio/wav", parts=[("audio", len(raw))]).json == answer


def test_usage_says_how_long_the_recording_was(ear: Runner) -> None:
    assert ear.send(recording(sine(seconds=2.5)), "audio/wav").head["usage"]["audio_seconds"] == 2.5


@pytest.mark.parametrize("raw", [b"", b"RIFF", b"OggS" + bytes(100), b"ID3" + bytes(500), recording(np.zeros(0)), recording(sine())[:40]])
def test_what_is_no_wav_is_refused_and_the_model_goes_on(ear: Runner, raw: bytes) -> None:
    answer = ear.send(raw, "audio/wav")
    assert answer.status == "bad_request" and ("WAV" in answer.head["message"] or "no samples" in answer.head["message"])
    assert best(ear, recording(sine()))["label"] == "Sine wave"


def test_a_wav_of_the_extensible_kind_is_read(ear: Runner) -> None:
    plain = recording(sine(), width=3)
    guid = bytes.fromhex("0100000000001000800000aa00389b71")
    fmt = b"\xfe\xff" + plain[22:36] + struct.pack("<HHI", 22, 24, 4) + guid
    raw = b"RIFF" + struct.pack("<I", len(plain) + 24 - 8) + b"WAVEfmt " + struct.pack("<I", len(fmt)) + fmt + plain[36:]
    assert best(ear, raw) == best(ear, plain)


def test_floats_in_a_wav_are_refused_by_name_of_what_is_taken(ear: Runner) -> None:
    raw = bytearray(recording(sine()))
    raw[20] = 3  # WAVE_FORMAT_IEEE_FLOAT
    answer = ear.send(bytes(raw), "audio/wav")
    assert answer.status == "bad_request" and "8, 16, 24 or 32 bits" in answer.head["message"]


def test_a_recording_without_end_is_refused(ear: Runner) -> None:
    answer = ear.send(recording(np.zeros(601 * 1000), 1000, width=1), "audio/wav")
    assert answer.status == "bad_request" and "600" in answer.head["message"]
