"""The probe model does what INTERFACE says, in a real runner; and its writer refuses what it doesn't know in one line."""

import json
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fornada.core.specs import read_spec
from fornada.testing.probe.writer import HERE, Refused, value_of, write_probe
from fornada_sdk.wire.messages import Kind
from tests.bounds import bound
from tests.unit.sdk.driver import Plane, Runner, Start

WHO = {"model", "instance", "pid", "load_count", "seq"}


def begin(start: Start, settings: dict[str, Any] | None = None, **assignment: Any) -> tuple[Runner, Plane]:
    runner = start(folder=assignment.pop("folder", HERE), settings=settings or {}, **assignment)
    return runner, runner.attach()


@pytest.fixture
def scratch(tmp_path: Path) -> str:
    return str(tmp_path)


def test_an_answer_says_who_gave_it(start: Start, scratch: str):
    runner, plane = begin(start, scratch=scratch, load_count=4)
    plane.ready()
    first, second = plane.call({"echo": {"any": [1, None]}}), plane.call({"echo": "é"})
    assert first == {"echo": {"any": [1, None]}, "model": "@test/m", "instance": "i-1", "pid": runner.pid, "load_count": 4, "seq": 1}
    assert second["echo"] == "é" and second["seq"] == 2
    assert plane.call({}).keys() == WHO


def test_tensors_come_back_unchanged(start: Start, scratch: str):
    _, plane = begin(start, scratch=scratch)
    plane.ready()
    tensors = {"x": [0.5, -1.25], "n": [1, 2**53], "b": ["a", ""]}
    answer = plane.call(tensors)
    assert {name: answer[name] for name in tensors} == tensors


def test_steps_make_a_stream(start: Start, scratch: str):
    _, plane = begin(start, scratch=scratch)
    plane.ready()
    id = plane.invoke({"steps": 3, "step_s": 0.02})
    assert plane.end_of(id).json["status"] == "ok"
    items = [json.loads(item.payload) for item in plane.items(id)]
    assert [item["step"] for item in items] == [0, 1, 2]
    assert all(item.keys() == {"step", *WHO} and item["seq"] == 1 for item in items)


def test_text_comes_character_by_character(start: Start, scratch: str):
    _, plane = begin(start, scratch=scratch)
    plane.ready()
    id = plane.invoke({"text": "pão 🥖"})
    plane.end_of(id)
    assert [json.loads(item.payload)["response"] for item in plane.items(id)] == list("pão 🥖")


@pytest.mark.parametrize(("body", "code"), [({"die": True}, 9), ({"die_at": 2}, 9), ({"segv": True}, -signal.SIGSEGV)])
def test_it_dies_as_asked(start: Start, scratch: str, body: dict, code: int):
    runner, plane = begin(start, scratch=scratch)
    plane.ready()
    id = plane.invoke({**body, "steps": 5} if "die_at" in body else body)
    assert runner.exit_code() == code
    plane.wait_closed()
    assert len(plane.items(id)) == body.get("die_at", 0)


def test_it_is_bad_and_poisoned_as_asked(start: Start, scratch: str):
    _, plane = begin(start, scratch=scratch)
    plane.ready()
    assert plane.end_of(plane.invoke({"bad": True})).head["status"] == "bad_request"
    assert plane.end_of(plane.invoke([1])).head["status"] == "bad_request"
    plane.call({"poison": True})
    for _ in range(2):
        assert plane.end_of(plane.invoke({"echo": 1})).head["message"] == "RuntimeError: CUDA error: device-side assert triggered"


def test_it_answers_with_what_is_hard_to_send(start: Start, scratch: str):
    runner, plane = begin(start, scratch=scratch)
    plane.ready()
    message = plane.end_of(plane.invoke({"nan": True}))
    assert message.answer["nan"] == [None, None, None] and message.head["nonfinite"] is True
    assert len(plane.call({"big_out_mb": 3})["big"]) == 3_000_000
    assert plane.call({"pip": ["no-such-package-of-any-name"]})["pip"] == {"no-such-package-of-any-name": None}
    assert plane.call({"alloc_mib": 20})["allocated_mib"] == 20
    plane.call({"log_spam": 0.5})
    runner.wait_line(lambda line: "spam spam" in line)
    child = plane.call({"fork_child": True})["child"]
    assert Path(f"/proc/{child}").exists()


def test_sleep_looks_for_cancellation(start: Start, scratch: str):
    _, plane = begin(start, scratch=scratch)
    plane.ready()
    began = time.monotonic()
    assert "seq" in plane.call({"sleep_s": 0.2})
    assert time.monotonic() - began >= 0.2
    id = plane.invoke({"sleep_s": 30})
    time.sleep(0.1)
    plane.cancel(id)
    assert plane.end_of(id, 0.5).head["status"] == "cancelled"


def test_a_stream_that_nobody_wants_stops_within_two_steps(start: Start, scratch: str):
    runner, plane = begin(start, scratch=scratch)
    plane.ready()
    id = plane.invoke({"steps": 100, "step_s": 0.1})
    plane.wait_items(id, 3)
    plane.cancel(id)
    plane.end_of(id)
    time.sleep(0.3)
    assert sum('\\"event\\":\\"step\\"' in line for line in runner.lines) <= 5


def test_it_writes_what_happens_to_stdout_and_to_its_log(start: Start, scratch: str):
    runner, plane = begin(start, scratch=scratch, load_count=2)
    plane.ready()
    plane.call({"echo": "hello"}, request_id="mine")
    plane.end_of(plane.invoke({"steps": 2}))
    runner.wait_line(lambda line: '\\"step\\":1' in line)
    lines = [json.loads(record["line"]) for record in runner.records if record["stream"] == "stdout"]
    assert [line["event"] for line in lines] == ["load", "loaded", "request", "request", "step", "step"]
    assert all(line["pid"] == runner.pid for line in lines)
    assert lines[0]["load_count"] == 2 and lines[2]["echo"] == "hello" and lines[2]["request_id"] == "mine"
    assert [line.get("step") for line in lines[-2:]] == [0, 1]
    log = Path(scratch) / "probe.log"
    assert [json.loads(line) for line in log.read_text().splitlines()] == lines
    long = "x" * 300_000
    assert plane.call({"echo": long})["echo"] == long
    assert log.stat().st_size < 10_000, "a long text isn't noted whole: the log lies in the model's memory"


def test_settings_of_loading(start: Start, scratch: str):
    _, plane = begin(start, {"load_s": 0.4, "warmup_s": 0.2, "load_progress": True, "hold_mib": 10}, scratch=scratch)
    facts = plane.ready()
    assert facts["load_s"] >= 0.4 and facts["warmup_s"] >= 0.2
    assert facts["tensors"] == {"inputs": [], "outputs": []}
    progress = [m.json["fraction"] for m in plane.messages if m.kind is Kind.PROGRESS]
    assert len(progress) >= 2 and progress == sorted(progress) and progress[-1] <= 1


@pytest.mark.parametrize(("n", "attempt", "fails"), [(2, 2, True), (2, 3, False), ("inf", 99, True)])
def test_loading_fails_as_often_as_asked(start: Start, scratch: str, n: Any, attempt: int, fails: bool):
    _, plane = begin(start, {"fail_load_n": n}, scratch=scratch, load_attempt=attempt)
    if fails:
        assert plane.kind(Kind.FAILED).json["reason"] == f"RuntimeError: the probe fails load attempt {attempt} of {n}"
    else:
        plane.ready()


def test_an_unknown_setting_fails_the_load(start: Start, scratch: str):
    _, plane = begin(start, {"lod_s": 1}, scratch=scratch)
    assert "no setting lod_s" in plane.kind(Kind.FAILED).json["reason"]


def test_it_books_device_memory(start: Start, scratch: str):
    device = {"id": "cuda:0", "kind": "fake", "memory_bytes": 1 << 30}
    _, plane = begin(start, {"device_mib": 100, "release_delay_s": 1.5}, scratch=scratch, device=device)
    book = plane.kind(Kind.BOOK)
    assert book.json == {"device": "cuda:0", "bytes": 100 * 1024 * 1024, "release_delay_s": 1.5}
    plane.booked(book.id, ok=True)
    plane.ready()


def test_stop_s_delays_the_end(start: Start, scratch: str):
    runner, plane = begin(start, {"stop_s": 0.5}, scratch=scratch)
    plane.ready()
    began = time.monotonic()
    plane.stop(10)
    assert runner.exit_code() == 0
    assert 0.5 <= time.monotonic() - began < bound(2)


def test_with_ignore_sigterm_only_sigkill_ends_it(start: Start, scratch: str):
    runner, plane = begin(start, {"ignore_sigterm": True}, scratch=scratch)
    plane.ready()
    runner.signal(signal.SIGTERM)
    assert plane.call({"echo": 1})["echo"] == 1
    plane.stop(0)
    time.sleep(0.5)
    assert runner.alive
    runner.signal(signal.SIGKILL)
    assert runner.exit_code() == -signal.SIGKILL


@pytest.mark.parametrize("serving", [{"max_batch": 8, "max_wait_ms": 50}, {"concurrency": 4}])
def test_eight_at_once_with_one_bad(start: Start, scratch: str, serving: dict):
    _, plane = begin(start, scratch=scratch, serving=serving)
    plane.ready()
    ids = [plane.invoke({"echo": n, "sleep_s": 0.05, "bad": n == 4}) for n in range(8)]
    heads = [plane.end_of(id).head.get("status", "ok") for id in ids]
    assert heads == ["bad_request" if n == 4 else "ok" for n in range(8)]
    answers = [plane.answer(id) for n, id in enumerate(ids) if n != 4]
    assert [answer["echo"] for answer in answers] == [0, 1, 2, 3, 5, 6, 7]
    assert len({answer["seq"] for answer in answers}) == 7


# ---- the writer


def run_writer(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fornada.testing.probe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=bound(30), check=False)


def test_the_folder_itself_is_a_model():
    spec = read_spec((HERE / "model.toml").read_text())
    assert spec.engine == "python" and spec.python.entry == "model.py" and [t.name for t in spec.tensors.inputs] == ["x", "n", "b"]


def test_a_copy_is_ready_to_deploy(tmp_path: Path):
    folder = tmp_path / "a"
    done = run_writer(
        str(folder), "--name", "@test/a", "--set", "load_s=3", "--set", "fail_load_n=inf", "--set", "ignore_sigterm=true",
        "--serving", "idle_timeout_s=2", "--serving", "max_body=5MiB", "--resources", "memory=64MiB",
        "--resources", 'network=["localhost:80"]', "--dependency", "numpy==2.0.0",
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.strip() == str(folder), done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["model.py", "model.toml"]
    spec = read_spec((folder / "model.toml").read_text())
    assert spec.name == "@test/a" and spec.python.dependencies == ["numpy==2.0.0"]
    assert spec.settings == {"load_s": 3, "fail_load_n": "inf", "ignore_sigterm": True}
    assert (spec.serving.idle_timeout_s, spec.serving.max_body, spec.resources.memory) == (2, 5 * 1024**2, 64 * 1024**2)
    assert spec.resources.network == ["localhost:80"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "lod_s=3"], "[settings] of the probe has no 'lod_s'; did you mean 'load_s'?"),
        (["--serving", "zzz=1"], "[serving] of the probe has no 'zzz'; there are concurrency"),
        (["--resources", "memory=lots"], "[resources] memory"),
        (["--name", "no slash:colon"], ""),
        (["--set", "load_s"], "--set load_s: write KEY=VALUE"),
        (["--serving", "concurrency=0"], "[serving] concurrency = 0"),
    ],
)
def test_what_it_does_not_know_is_refused_in_one_line(tmp_path: Path, arguments: list[str], message: str):
    done = run_writer(str(tmp_path / "a"), *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and message in done.stderr
    assert not (tmp_path / "a").exists()


def test_odd_values_survive_toml(tmp_path: Path):
    settings = {"load_s": 1.5e-7, "stop_s": 0}
    folder = write_probe(tmp_path / "a", name="@test/one two", settings=settings)
    table = tomllib.loads((folder / "model.toml").read_text())
    assert table["name"] == "@test/one two" and table["settings"] == settings
    with pytest.raises(Refused):
        write_probe(tmp_path / "b", settings={"load_s": object()})


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("1", 1), ("1.5", 1.5), ("inf", "inf"), ("Infinity", "Infinity"), ("64MiB", "64MiB"), ("[1, 2]", [1, 2]), ("", "")],
)
def test_values_of_the_command_line(text: str, value: Any):
    assert value_of(text) == value


def test_the_writer_takes_several_values_behind_one_flag_wherever_the_folder_stands(tmp_path: Path):
    from fornada.testing.probe.__main__ import main

    flags = ["--set", "load_s=1", "stop_s=2", "--resources", "device=cuda", "--set", "warmup_s=0.5", str(tmp_path / "copy")]
    assert main([*flags, "--serving", "max_batch=4", "max_wait_ms=5"]) == 0
    spec = read_spec((tmp_path / "copy" / "model.toml").read_text())
    assert {key: spec.settings[key] for key in ("load_s", "stop_s", "warmup_s")} == {"load_s": 1, "stop_s": 2, "warmup_s": 0.5}
    assert (spec.resources.device, spec.serving.max_batch, spec.serving.max_wait_ms) == ("cuda", 4, 5)
