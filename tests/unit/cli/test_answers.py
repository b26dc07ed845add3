"""What `fornada run` shows of each task's answer."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.unit.cli.conftest import Cli, line
from tests.unit.cli.fake_node import FakeNode, Said, events, model, say
from tests.unit.cli.terminal import on_a_terminal

NAME = "@local/m"
RUN = f"/client/v4/accounts/local/ai/run/{NAME}"


def answers(node: FakeNode, result: Any, task: str = "custom") -> None:
    node.on("GET", f"/api/v1/models/{NAME}", say(model(NAME, task=task)))
    node.on("POST", RUN, say({"result": result, "success": True, "errors": [], "messages": []}))


def png(size: tuple[int, int], *, mode: str = "L", fill: Any = 0, boxes: dict[tuple[int, int, int, int], Any] | None = None) -> bytes:
    image = Image.new(mode, size, fill)
    for box, value in (boxes or {}).items():
        image.paste(value, box)
    written = io.BytesIO()
    image.save(written, "PNG")
    return written.getvalue()


def segmentation(mask: bytes, labels: list[str] | None = None) -> dict[str, Any]:
    named = ["background", "cat", "dog"] if labels is None else labels
    return {"width": 10, "height": 10, "labels": named, "mask": base64.b64encode(mask).decode()}


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (
            [{"label": "GPE", "text": "Lisbon", "start": 40, "end": 46}, {"label": "DATE", "text": "Monday", "start": 80, "end": 86}],
            ["LABEL  TEXT    CHARACTERS", "GPE    Lisbon  40-46", "DATE   Monday  80-86"],
        ),
        (
            {"keypoints": [{"name": "left_eye", "x": 1.6, "y": 2, "score": 0.9}, {"name": "nose", "x": 3, "y": 4, "score": 0.1}]},
            ["POINT     X  Y  SCORE", "left eye  2  2  0.900", "nose      3  4  0.100  a guess"],
        ),
        (
            {"text": "a\nb", "lines": [{"text": "Pastel", "score": 0.99, "box": [[17, 41], [52, 41], [52, 78], [17, 76]]}]},
            ["#  TEXT    SCORE  AT", "1  Pastel  0.990  17 41"],
        ),
        ({"text": "", "lines": []}, ["no text found"]),
        (segmentation(png((10, 10), boxes={(0, 0, 10, 4): 1})), ["LABEL       SHARE", "background  60.0%", "cat         40.0%"]),
        ({"text": "Hello.", "word_count": 1, "words": [], "vtt": "WEBVTT\n"}, ["Hello."]),
        ({"summary": "Short."}, ["Short."]),
        ({"translated_text": "Olá."}, ["Olá."]),
        ({"description": "A cat."}, ["A cat."]),
        ({"choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}}], "usage": {}}, ["Yes."]),
    ],
    ids=["entities", "pose", "read text", "no text", "segments", "speech", "summary", "translation", "description", "chat"],
)
def test_an_answer_is_shown_for_eyes(cli: Cli, node: FakeNode, result: Any, shown: list[str]):
    answers(node, result)
    done = cli("run", NAME)
    assert (done.exit_code, done.stdout.splitlines()) == (0, shown)


def test_a_ranking_has_the_texts_that_were_asked_about(cli: Cli, node: FakeNode):
    answers(node, {"response": [{"id": 1, "score": 0.75}, {"id": 0, "score": -0.1}, {"id": 7, "score": None}]})
    texts = '{"query": "q", "contexts": [{"text": "first"}, {"text": "second, ' + "w" * 80 + '"}]}'
    rows = cli("run", NAME, "--input", texts).stdout.splitlines()
    assert rows[0].split() == ["RANK", "SCORE", "ID", "TEXT"]
    assert rows[1].startswith("1     0.750   1   second, www") and rows[1].endswith("w…")
    assert rows[2:] == ["2     -0.100  0   first", "3     -       7"]


def test_an_empty_list_of_finds_says_so_and_another_one_is_itself(cli: Cli, node: FakeNode):
    answers(node, [], task="object-detection")
    assert cli("run", NAME).stdout == "nothing found\n"
    answers(node, [])
    assert cli("run", NAME).stdout == "[]\n"


@pytest.mark.parametrize(
    "result",
    [
        {"keypoints": "none"},
        {"text": "x", "lines": [{"text": 7}]},
        [{"label": "x", "score": "much"}],
        [{"label": "x", "score": 0.5, "box": {"xmin": None}}],
        {"response": "x", "tool_calls": [{"name": "f"}]},
        {"image": "no base64!"},
        {"choices": [{"message": {"content": None, "tool_calls": [{}]}}]},
    ],
)
def test_an_answer_of_an_odd_shape_is_json_and_no_error(cli: Cli, node: FakeNode, result: Any):
    answers(node, result)
    done = cli("run", NAME)
    assert done.exit_code == 0 and done.stdout[0] in "{["


@pytest.mark.parametrize("mask", [b"no png", png((3, 3), mode="RGB")])
def test_a_mask_that_is_none_is_the_models_fault(cli: Cli, node: FakeNode, mask: bytes):
    answers(node, segmentation(mask))
    done = cli("run", NAME)
    assert done.exit_code == 1 and "the model's fault" in line(done)


def test_subtitles_go_to_a_file_and_the_text_to_the_terminal(cli: Cli, node: FakeNode, tmp_path: Path):
    answers(node, {"text": "Hello.", "words": [], "vtt": "WEBVTT\n\n00:00.000 --> 00:01.000\nHello.\n"})
    done = cli("run", NAME, "--out", tmp_path / "a.vtt")
    assert done.stdout == "Hello.\n" and (tmp_path / "a.vtt").read_text().startswith("WEBVTT")
    answers(node, {"response": "x"})
    refused = cli("run", NAME, "--out", tmp_path / "b.vtt")
    assert refused.exit_code == 1 and "no subtitles" in line(refused)


def test_a_file_inside_json_is_a_file_outside(cli: Cli, node: FakeNode, tmp_path: Path):
    picture = png((2, 2))
    answers(node, {"image": base64.b64encode(picture).decode()})
    assert cli("run", NAME).stdout_bytes == picture
    assert cli("run", NAME, "--out", tmp_path / "a.png").stdout == ""
    assert (tmp_path / "a.png").read_bytes() == picture
    assert cli("run", NAME, "--out", tmp_path / "a.json").exit_code == 0
    assert json.loads((tmp_path / "a.json").read_text()).keys() == {"image"}
    seen = on_a_terminal("run", NAME, url=node.url)
    assert seen.code == 1 and f"{len(picture)} bytes of image/png, nothing for a terminal; --out answer.png saves it" in seen.text


def test_talk_is_streamed_to_a_terminal_without_being_asked_for(node: FakeNode):
    answers(node, None, task="text-generation")
    node.on("POST", RUN, events('{"response":"Bom "}', '{"response":"dia"}', "[DONE]"))
    assert on_a_terminal("run", NAME, "-i", "prompt=x", url=node.url).text == "Bom dia\n"
    assert node.one("POST", RUN).json == {"prompt": "x", "stream": True}


@pytest.mark.parametrize("args", [["--no-stream"], ["--json"], ["-i", "n=2"], ["-i", "stream=false"]])
def test_unless_something_speaks_against_it(node: FakeNode, args: list[str]):
    answers(node, {"response": "Bom dia"}, task="text-generation")
    assert on_a_terminal("run", NAME, "-i", "prompt=x", *args, url=node.url).code == 0
    assert node.one("POST", RUN).json.get("stream") in (None, False)


def test_nor_does_a_pipe_get_a_stream(cli: Cli, node: FakeNode):
    answers(node, {"response": "Bom dia"}, task="text-generation")
    assert cli("run", NAME, "-i", "prompt=x").stdout == "Bom dia\n"
    assert node.one("POST", RUN).json == {"prompt": "x"}


def test_sound_is_sent_as_it_is(cli: Cli, node: FakeNode, tmp_path: Path):
    answers(node, {"text": "Hello.", "words": [], "vtt": ""})
    (tmp_path / "a.wav").write_bytes(b"RIFF\0\0\0\0WAVE")
    assert cli("run", NAME, "--file", tmp_path / "a.wav").stdout == "Hello.\n"
    asked = node.one("POST", RUN)
    assert asked.body == b"RIFF\0\0\0\0WAVE" and asked.headers["content-type"].startswith("audio/")


def test_out_and_stream_exclude_one_another(cli: Cli, node: FakeNode):
    done = cli("run", NAME, "--stream", "--out", "a.png")
    assert done.exit_code == 2 and "exclude one another" in line(done)


def test_text_that_is_served_as_text_is_printed(cli: Cli, node: FakeNode):
    answers(node, None)
    node.on("POST", RUN, Said(b"plain", type="text/plain"))
    assert cli("run", NAME).stdout == "plain\n"
