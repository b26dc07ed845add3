"""OpenAI's client with the stand-ins for speech and pictures, and a transcript in another language, through a real node."""

import base64
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.bounds import bound
from tests.harness.node import Node
from tests.http.test_text_clients import ACCOUNT, HEARER, deployed

pytestmark = pytest.mark.clients

CONTRACT = Path(__file__).parents[2] / "examples" / "contract"


def stand_in(node: Node, task: str) -> str:
    name = f"@contract/{task}"
    node.deploy(name, CONTRACT / task)
    return name


def client_of(base: str) -> openai.OpenAI:
    return openai.OpenAI(api_key="any", base_url=base, timeout=bound(30), max_retries=0)


def test_openai_s_client_speaks_draws_and_translates(node: Node, tmp_path: Path):
    voice, brush = stand_in(node, "text-to-speech"), stand_in(node, "text-to-image")
    ears = deployed(node, "@media/ears", HEARER, "automatic-speech-recognition")
    with client_of(f"{node.url}/v1") as client:
        speech = tmp_path / "speech.mp3"
        with client.audio.speech.with_streaming_response.create(
            model=voice, voice="coral", input="Today is a wonderful day.", instructions="Speak in a cheerful tone."
        ) as response:
            response.stream_to_file(speech)
        assert speech.read_bytes()[:2] == b"\xff\xfb" and response.headers["content-type"] == "audio/mpeg"
        assert client.audio.speech.create(model=voice, voice="coral", input="Hi").content
        with pytest.raises(openai.BadRequestError, match="response_format"):
            client.audio.speech.create(model=voice, voice="coral", input="Hi", response_format="wav")
        drawn = client.images.generate(model=brush, prompt="A cute baby sea otter", n=2, size="256x256")
        assert drawn.data and [base64.b64decode(each.b64_json or "")[:4] for each in drawn.data] == [b"\x89PNG", b"\x89PNG"]
        with pytest.deprecated_call():
            translated: Any = client.audio.translations.create(model=ears, file=("a.wav", b"RIFF" + bytes(96)))
        assert translated.text == "heard 100"
        with pytest.raises(openai.NotFoundError) as missing:
            client.audio.speech.create(model="tts-1", voice="alloy", input="Hi")
        assert missing.value.code == "5007"
    with client_of(f"{node.url}/client/v4/accounts/{ACCOUNT}/ai/v1") as client:
        assert client.audio.speech.create(model=voice, voice="coral", input="Hi").content
