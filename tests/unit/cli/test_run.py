"""`fornada run`: every way to give the input, every form of the answer."""

import base64
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import bound
from tests.unit.cli.conftest import Cli, line
from tests.unit.cli.fake_node import Asked, FakeNode, Said, error, events, model, say

NAME = "@cf/a/b"
RUN = f"/client/v4/accounts/local/ai/run/{NAME}"
PNG = b"\x89PNG\r\n\x1a\n\x00\xff"


def answers(node: FakeNode, result: Any, **extra: Any) -> None:
    node.on("GET", f"/api/v1/models/{NAME}", say(model(NAME)))
    node.on("POST", RUN, say({"result": result, "success": True, "errors": [], "messages": [], **extra}))


@pytest.mark.parametrize(
    ("args", "stdin", "sent"),
    [
        ([], None, {}),
        (["--input", '{"x": [1, 2]}'], None, {"x": [1, 2]}),
        (["--input", "-"], '{"x": 1}', {"x": 1}),
        (["-"], '{"x": 1}', {"x": 1}),
        (["--file", "-"], '{"x": 1}', {"x": 1}),
        (
            ["-i", "a=1", "-i", "b=true", "-i", 'c="1"', "-i", "d=word", "-i", "e=", "-i", "f=x=y"],
            None,
            {"a": 1, "b": True, "c": "1", "d": "word", "e": "", "f": "x=y"},
        ),
        (["-i", "a=[1,2]", "-i", "b={not json"], None, {"a": [1, 2], "b": "{not json"}),
        (["-i", "a=@-"], "text", {"a": "text"}),
    ],
)
def test_json_input_reaches_the_model(cli: Cli, node: FakeNode, args: list[str], stdin: str | None, sent: Any):
    answers(node, {"ok": True})
    result = cli("run", NAME, *args, input=stdin)
    assert result.exit_code == 0, result.stderr
    asked = node.one("POST", RUN)
    assert asked.json == sent
    assert asked.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--input", "[" * 100_000], 2),
        (["--input", '{"a": "\\ud800"}'], 2),
        (["--input", '{"a": NaN}'], 2),
        (["-i", 'a="\\ud800"'], 2),
        (["-i", "a=" + "[" * 100_000], 0),
        (["-i", "a=NaN"], 0),
    ],
)
def test_input_that_can_be_no_json_is_refused_in_one_line_or_is_text(cli: Cli, node: FakeNode, args: list[str], code: int):
    answers(node, {"ok": True})
    result = cli("run", NAME, *args)
    assert result.exit_code == code, result.stderr
    if code:
        line(result)
    else:
        assert node.one("POST", RUN).json == {"a": args[1].removeprefix("a=")}


def test_an_answer_that_is_nested_too_deeply_is_refused_in_one_line(cli: Cli, node: FakeNode):
    node.on("GET", f"/api/v1/models/{NAME}", say(model(NAME)))
    node.on("POST", RUN, Said(b"[" * 200_000 + b"]" * 200_000))
    result = cli("run", NAME)
    assert result.exit_code == 1 and "nested" in line(result)


def test_a_picture_is_sent_as_it_is(cli: Cli, node: FakeNode, tmp_path: Path):
    answers(node, [])
    (tmp_path / "a.png").write_bytes(PNG)
    assert cli("run", NAME, "--file", tmp_path / "a.png").exit_code == 0
    asked = node.one("POST", RUN)
    assert (asked.body, asked.headers["content-type"]) == (PNG, "image/png")


def test_a_file_that_holds_json_is_sent_as_json(cli: Cli, node: FakeNode, tmp_path: Path):
    answers(node, [])
    (tmp_path / "request").write_text(' {"x": 1}\n')
    assert cli("run", NAME, "--file", tmp_path / "request").exit_code == 0
    assert node.one("POST", RUN).json == {"x": 1}


def test_stdin_may_be_binary(cli: Cli, node: FakeNode):
    answers(node, [])
    assert cli("run", NAME, "-", input=PNG).exit_code == 0
    assert node.one("POST", RUN).body == PNG


def test_a_field_may_be_a_file_as_text_or_as_base64(cli: Cli, node: FakeNode, tmp_path: Path):
    answers(node, [])
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "a.txt").write_text("5 % of ü")
    assert cli("run", NAME, "-i", f"image=@{tmp_path / 'a.png'}", "-i", f"text=@{tmp_path / 'a.txt'}").exit_code == 0
    assert node.one("POST", RUN).json == {"image": base64.b64encode(PNG).decode(), "text": "5 % of ü"}


@pytest.mark.parametrize(
    "args",
    [
        ["--input", "{"],
        ["--input", "{}", "-i", "a=1"],
        ["--file", "nowhere.png"],
        ["--file", "."],
        ["-i", "novalue"],
        ["-i", "=1"],
        ["-i", "a=@nowhere"],
        ["prompt"],
        ["--input", "[1]", "--stream"],
    ],
)
def test_bad_input_is_refused_before_the_node_is_asked(cli: Cli, node: FakeNode, args: list[str]):
    result = cli("run", NAME, *args)
    assert result.exit_code == 2
    assert line(result).startswith("fornada run: ")
    assert not node.asked


def test_labels_are_a_table(cli: Cli, node: FakeNode):
    answers(node, [{"label": "espresso", "score": 0.94012}, {"label": "cup", "score": 0.01}])
    assert cli("run", NAME).stdout.splitlines() == ["LABEL     SCORE", "espresso  0.940", "cup       0.010"]


def test_boxes_stand_beside_their_labels(cli: Cli, node: FakeNode):
    answers(node, [{"label": "dog", "score": 0.8, "box": {"xmin": 1, "ymin": 2.4, "xmax": 3, "ymax": 4}}])
    assert cli("run", NAME).stdout.splitlines()[1] == "dog    0.800  1 2 3 4"


def test_embeddings_are_a_summary(cli: Cli, node: FakeNode):
    answers(node, {"shape": [2, 5], "data": [[3, 4, 0, 0, 0], [None, 1, 0, 0, 0]], "pooling": "mean"})
    first, second, third = cli("run", NAME).stdout.splitlines()
    assert first == "2 x 5 numbers, pooling mean"
    assert second == "[0]  3.0000, 4.0000, 0.0000, 0.0000, …  (length 5.000)"
    assert third.startswith("[1]  1.0000")


@pytest.mark.parametrize(
    ("result", "shown"), [({"response": "Bom dia."}, "Bom dia."), ("plain", "plain"), (7, "7"), ({"a": [1]}, '{\n  "a": [\n    1\n  ]\n}')]
)
def test_text_is_text_and_the_rest_is_json(cli: Cli, node: FakeNode, result: Any, shown: str):
    answers(node, result)
    assert cli("run", NAME).stdout == shown + "\n"


def test_json_prints_the_result_alone_on_one_line(cli: Cli, node: FakeNode):
    answers(node, [{"label": "ü", "score": 1}])
    assert cli("run", NAME, "--json").stdout == '[{"label": "ü", "score": 1}]\n'


def test_numbers_that_are_not_finite_are_pointed_out(cli: Cli, node: FakeNode):
    answers(node, {"x": None}, nonfinite=True)
    result = cli("run", NAME, "--json")
    assert json.loads(result.stdout) == {"x": None}
    assert "not finite" in line(result)


def test_bytes_go_to_a_pipe_or_to_a_file(cli: Cli, node: FakeNode, tmp_path: Path):
    answers(node, None)
    node.on("POST", RUN, Said(PNG, type="image/png"))
    assert cli("run", NAME).stdout_bytes == PNG
    result = cli("run", NAME, "--output", tmp_path / "out.png")
    assert result.stdout == "" and (tmp_path / "out.png").read_bytes() == PNG
    refused = cli("run", NAME, "--output", tmp_path / "no" / "out.png")
    assert refused.exit_code == 1 and "No such file or directory" in line(refused)


def posts(node: FakeNode) -> list[str]:
    return [asked.path for asked in node.asked if asked.method == "POST"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_is_not_loaded_is_loaded_by_the_request_and_shows_how_far_it_is(cli: Cli, node: FakeNode, stream: bool):
    loading = threading.Event()
    looks = []

    def look(_: Asked) -> Said:
        looks.append(1)
        if len(looks) > 2:
            loading.set()
        progress = {"phase": "building", "text": "numpy 2.4.6", "fraction": 0.5} if len(looks) > 1 else None
        return say(model(NAME, state="pending" if len(looks) > 1 else "stopped", progress=progress))

    def run(_: Asked) -> Said:
        assert loading.wait(bound(10))
        return events('{"response":"done"}', "[DONE]") if stream else say({"result": {"response": "done"}, "success": True})

    node.on("GET", f"/api/v1/models/{NAME}", look)
    node.on("POST", RUN, run)
    result = cli("run", NAME, *(["--stream"] if stream else []))
    assert (result.exit_code, result.stdout) == (0, "done\n")
    assert line(result) == f"{NAME}: building 50%: numpy 2.4.6"
    assert posts(node) == [RUN]


@pytest.mark.parametrize(("stream", "status", "code"), [(False, 408, 3046), (True, 408, 3046), (False, 429, 3040)])
def test_a_load_that_takes_longer_than_a_request_may_wait_is_waited_for(cli: Cli, node: FakeNode, stream: bool, status: int, code: int):
    said = [
        error(status, code, "the deadline passed"),
        events('{"response":"x"}', "[DONE]") if stream else say({"result": {"response": "x"}, "success": True}),
    ]
    node.on("GET", f"/api/v1/models/{NAME}", say(model(NAME, state="stopped")))
    node.on("POST", RUN, lambda _: said.pop(0))
    node.on("POST", f"/api/v1/models/{NAME}/load", say(model(NAME)))
    result = cli("run", NAME, *(["--stream"] if stream else []))
    assert (result.exit_code, result.stdout) == (0, "x\n"), result.stderr
    assert posts(node) == [RUN, f"/api/v1/models/{NAME}/load", RUN]


def test_a_model_that_is_ready_and_too_slow_is_asked_once(cli: Cli, node: FakeNode):
    node.on("GET", f"/api/v1/models/{NAME}", say(model(NAME)))
    node.on("POST", RUN, error(408, 3046, "the deadline passed"))
    assert cli("run", NAME).exit_code == 1
    assert posts(node) == [RUN]


def test_nothing_is_loaded_for_an_input_that_the_model_does_not_take(cli: Cli, node: FakeNode):
    node.on("GET", f"/api/v1/models/{NAME}", say(model(NAME, state="stopped")))
    node.on("POST", RUN, error(400, 5006, "AiError: Bad input: Error: required properties at '/' are 'prompt'"))
    result = cli("run", NAME)
    assert result.exit_code == 1 and "required properties at '/' are 'prompt' [5006" in line(result)
    assert posts(node) == [RUN]


@pytest.mark.parametrize("given", [["--file", "missing.png"], ["-i", "image=@missing.png"], ["--out", "missing/out.png"], ["--out", "."]])
def test_a_file_that_is_not_there_is_told_before_anybody_is_asked(cli: Cli, node: FakeNode, given: list[str]):
    result = cli("run", "no/such-model", *given)
    assert result.exit_code in (1, 2)
    assert "No such file or directory" in result.stderr or "Is a directory" in result.stderr
    assert node.asked == []


def test_a_load_that_fails_is_the_answer(cli: Cli, node: FakeNode):
    node.on("GET", f"/api/v1/models/{NAME}", say(model(NAME, state="failed")))
    node.on("POST", RUN, error(503, 3102, "exit code 1", retry_after="4"))
    result = cli("run", NAME)
    assert result.exit_code == 1
    assert "exit code 1 [3102, the model's fault]" in line(result)


def test_a_stream_of_text_is_shown_as_text(cli: Cli, node: FakeNode):
    answers(node, None)
    node.on("POST", RUN, events('{"response":"Bom "}', '{"response":"dia"}', '{"response":"","usage":{}}', "[DONE]"))
    result = cli("run", NAME, "-i", "prompt=x", "--stream")
    assert (result.exit_code, result.stdout) == (0, "Bom dia\n")
    assert node.one("POST", RUN).json == {"prompt": "x", "stream": True}


def test_a_stream_that_the_input_asks_for_is_shown_as_text_too(cli: Cli, node: FakeNode):
    node.on("GET", f"/api/v1/models/{NAME}", say(model(NAME)))
    node.on("POST", RUN, events('{"response":"one "}', '{"response":"two"}', "[DONE]"))
    assert cli("run", NAME, "-i", "prompt=x", "-i", "stream=true").stdout == "one two\n"
    assert cli("run", NAME, "--input", '{"stream": true}', "--json").stdout == '{"response": "one "}\n{"response": "two"}\n'


def test_a_stream_as_json_is_a_line_per_item(cli: Cli, node: FakeNode):
    answers(node, None)
    node.on("POST", RUN, events('{"step":0}', '{"step":1}', "[DONE]"))
    assert cli("run", NAME, "--stream", "--json").stdout == '{"step": 0}\n{"step": 1}\n'
    assert cli("run", NAME, "--stream").stdout == '{"step": 0}\n{"step": 1}\n'


def test_a_picture_may_be_answered_by_a_stream(cli: Cli, node: FakeNode):
    answers(node, None)
    node.on("POST", RUN, events('{"response":"a cat"}', "[DONE]"))
    assert cli("run", NAME, "-", "--stream", input=PNG).stdout == "a cat\n"
    asked = node.one("POST", RUN)
    assert (asked.body, asked.query) == (PNG, {"stream": "true"})


def test_a_model_that_does_not_stream_may_be_asked_to(cli: Cli, node: FakeNode):
    answers(node, {"response": "at once"})
    assert cli("run", NAME, "--stream").stdout == "at once\n"


def test_a_stream_that_breaks_fails_and_keeps_what_came(cli: Cli, node: FakeNode):
    answers(node, None)
    body = {
        "error": {"message": "the runner died", "code": "3101"},
        "errors": [{"code": 3101, "message": "the runner died"}],
        "success": False,
    }
    node.on("POST", RUN, events('{"response":"Bo"}', error=json.dumps(body)))
    result = cli("run", NAME, "--stream")
    assert (result.exit_code, result.stdout) == (1, "Bo\n")
    assert "the runner died [3101, the model's fault]" in line(result)


def test_a_stream_without_its_end_fails(cli: Cli, node: FakeNode):
    answers(node, None)
    node.on("POST", RUN, events('{"response":"Bo"}'))
    result = cli("run", NAME, "--stream")
    assert (result.exit_code, result.stdout) == (1, "Bo\n")
    assert "ended before the model had finished" in line(result)
