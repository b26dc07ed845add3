"""Models that stand in for a task: true to its schema, plainly marked, never in the catalogue."""

import json
import struct
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest

from docs.generate import catalogue
from fornada.edge.tasks import TASKS, task_of
from fornada_sdk import Context, Request, Response
from tests.docs.pages import REPOSITORY
from tests.docs.test_examples import CONTRACT, expected, module_of, request_of

OF_TASKS = [folder for folder in CONTRACT if folder.name != "flux"]
"""But for the one that stands for no task of its own: a conversation."""
MODELS = pytest.mark.parametrize("folder", OF_TASKS, ids=lambda folder: folder.name)
REAL = {spec.task for _, spec in catalogue.entries()}


def test_every_task_has_a_real_model_or_a_contract_model_and_none_has_both():
    assert {folder.name for folder in OF_TASKS} == {task.slug for task in TASKS} - REAL - {"custom"}


def test_the_first_line_of_their_page_says_what_they_are_not():
    title, _, first, *_ = (REPOSITORY / "examples/contract/README.md").read_text().splitlines()
    assert "know nothing" in title and "No model of this folder is a real one." in first


@MODELS
def test_a_contract_model_says_so_everywhere(folder: Path):
    declared = tomllib.loads((folder / "model.toml").read_text())
    assert declared["name"] == f"@contract/{folder.name}" and declared["task"] == folder.name
    assert "aliases" not in declared and declared["description"].startswith("Contract model, no real one: ")
    assert (folder / "model.py").read_text().startswith('"""Contract model: ')
    assert "@contract" not in (REPOSITORY / "docs/reference/catalogue.md").read_text()


@MODELS
def test_its_request_and_its_answer_fit_the_task(folder: Path):
    task = task_of(folder.name)
    path = request_of(folder)
    given = json.loads(path.read_text()) if path.suffix == ".json" else {task.raw: list(path.read_bytes())}
    jsonschema_rs.validate(dict(task.input), given)
    answer = expected(folder)
    if not isinstance(answer, bytes):
        jsonschema_rs.validate(dict(task.output), answer)


ODD = {
    "translation": [{"text": "x", "target_lang": "pt", "source_lang": None}, {"text": "語" * 5000, "target_lang": "?"}],
    "summarization": [{"input_text": " "}, {"input_text": "x " * 9999, "max_length": 1}, {"input_text": "x", "max_length": None}],
    "text-to-image": [{"prompt": "x", "width": None, "seed": -1, "image": [1]}, {"prompt": "語", "width": 2048, "height": 256}],
    "image-to-text": [{"image": [0]}, {"image": [0, 255], "prompt": "what?", "max_tokens": None}],
    "text-to-speech": [{"text": "x"}, {"prompt": "x" * 100_000, "lang": None}, {"prompt": "x", "text": None}],
}


@MODELS
def test_whatever_its_task_allows_is_answered(folder: Path):
    task, handle = task_of(folder.name), module_of(folder).handle_request
    for given in ODD[folder.name]:
        jsonschema_rs.validate(dict(task.input), given)
        answer = handle(Request(json=given), Context.inactive())
        if not isinstance(answer, Response):
            jsonschema_rs.validate(dict(task.output), answer)
        else:
            assert answer.type == "image/png" and answer.body.startswith(b"\x89PNG")


def test_the_conversation_tells_turns_by_loudness():
    (folder,) = set(CONTRACT) - set(OF_TASKS)
    declared = tomllib.loads((folder / "model.toml").read_text())
    assert declared["name"] == "@contract/flux" and declared["description"].startswith("Contract model, no real one: ")
    assert (folder / "model.py").read_text().startswith('"""Contract model: ')
    loud, quiet = (struct.pack("<h", level) * 1600 for level in (9000, 3))
    messages: list[str | bytes] = [quiet, loud, loud, "words are for a real one", *[quiet] * 6, '{"type": "CloseStream"}', loud]
    request = Request(json={"sample_rate": "16000"}, messages=messages)
    events = list(module_of(folder).handle_request(request, Context.inactive()))
    assert [each["event"] for each in events] == ["Update", "StartOfTurn", "Update", *["Update"] * 4, "EndOfTurn", "Update"]
    assert [each["sequence_id"] for each in events] == list(range(9))
    ended = events[-2]
    assert (ended["turn_index"], ended["audio_window_start"], ended["end_of_turn_confidence"]) == (0, 0.1, 1.0)
    assert "not understood" in ended["transcript"] and events[-1]["turn_index"] == 1
