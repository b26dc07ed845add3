"""Engine "command": a real runner process around a real server of our own (openai_server.py), over a socket and over a port."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fornada_sdk.wire.framing import frame
from fornada_sdk.wire.messages import Kind, encode
from tests.bounds import bound
from tests.unit.sdk.driver import Plane, Runner, Start
from tests.unit.sdk.test_runner_pythons import interpreter

SERVER = Path(__file__).with_name("openai_server.py")
SOCKET = {"socket": "s.sock"}
ON_SOCKET = ["--socket", "{socket}"]
Serve = Callable[..., Runner]


@pytest.fixture
def serve(start: Start) -> Serve:
    """Starts a runner around the server: `serve("--stubborn", port=8000)`; on a socket unless a port is named."""

    def serve(*more: str, settings: dict[str, Any] | None = None, **changes: Any) -> Runner:
        where = ["--port", "{port}"] if "port" in changes else ON_SOCKET
        place: dict[str, Any] = {"port": changes.pop("port")} if "port" in changes else {**SOCKET}
        command = {"args": [sys.executable, "-I", str(SERVER), *where, *more], **place, "health": changes.pop("health", "")}
        return start("", engine="command", command=command, settings=settings or {}, **changes)

    return serve


def say(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **more}


def ready(runner: Runner) -> Plane:
    plane = runner.attach()
    plane.ready()
    return plane


def pid_after(runner: Runner, words: str) -> int:
    line = runner.wait_line(lambda line: words in line)
    return int(line.split(words)[1].split('"')[0])


def wait_gone(pid: int, seconds: float = 10.0) -> None:
    end = time.monotonic() + bound(seconds)
    while alive(pid):
        assert time.monotonic() < end, f"{pid} still runs"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


# ---- start -----------------------------------------------------------------------------------------------------------------------


def test_a_chat_goes_to_the_server_and_its_answer_comes_back(serve: Serve) -> None:
    runner = serve()
    plane = ready(runner)
    message = plane.end_of(plane.invoke(say("hello there", temperature=0, top_p=None)))
    answer = message.answer
    assert answer["choices"][0]["message"]["content"] == "hello there" and answer["model"] == "@test/m"
    assert message.head["usage"] == {"input_tokens": 3, "output_tokens": 2}
    assert answer["asked"] == say("hello there", temperature=0, model="their-name", max_tokens=256)
    assert plane.call({"prompt": "hi"})["asked"]["messages"] == [{"role": "user", "content": "hi"}]
    assert plane.call({"prompt": "raw text", "raw": True})["choices"][0]["text"] == "raw text"
    assert len(plane.call(say("big"))["choices"][0]["message"]["content"]) == 3_000_000
    # What it prints is the model's log.
    runner.wait_line(lambda line: '"stdout"' in line and "POST /v1/chat/completions" in line)


def test_a_free_port_is_chosen_and_a_taken_one_is_refused(serve: Serve) -> None:
    assert ready(serve(port=0)).call(say("on a port"))["choices"][0]["message"]["content"] == "on a port"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        failed = serve(port=taken.getsockname()[1]).attach().kind(Kind.FAILED)
    assert "Address already in use" in failed.json["reason"]


def test_a_socket_deeper_than_a_socket_path_may_be_still_works(serve: Serve, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    assert ready(serve(scratch=str(deep))).call(say("deep"))["choices"][0]["message"]["content"] == "deep"


def test_placeholders_are_filled_in_and_other_braces_are_left(serve: Serve, start: Start) -> None:
    shown = '{artifact:weights/m.gguf} {device} {threads} {scratch} {"a": {}}'
    runner = serve("--show", shown, artifacts={"weights/m.gguf": "/a/b c"}, resources={"threads": 3, "memory_bytes": 0})
    ready(runner)
    place = runner.wait_line(lambda line: "shown" in line)
    assert "/a/b c cpu 3 /" in place and r"{\"a\": {}}" in place
    for args, why in [(["{prot}"], "{prot} is no placeholder"), (["{artifact:x}"], "no artifact 'x'"), ([], "args is empty")]:
        failed = start("", engine="command", command={"args": args}).attach().kind(Kind.FAILED)
        assert why in failed.json["reason"]


def test_a_program_of_the_folder_is_found_and_a_missing_one_is_named(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -I {SERVER} "$@"\n')
    script.chmod(0o755)
    assert ready(start(folder=tmp_path, engine="command", command={"args": ["./serve.sh", *ON_SOCKET], **SOCKET})).call(say("found"))
    failed = start("", engine="command", command={"args": ["no-such-server"]}).attach().kind(Kind.FAILED)
    assert "can't execute no-such-server: No such file" in failed.json["reason"]


def test_a_slow_start_is_progress_and_then_ready(serve: Serve) -> None:
    plane = serve("--listen-after", "1.5", "--healthy-after", "2").attach()
    plane.ready()
    told = [message.json["text"] for message in plane.messages if message.kind is Kind.PROGRESS]
    assert any("reading weights" in text for text in told) and "/health answers 503" in told


def test_a_server_that_never_gets_healthy_is_no_progress_and_ends_with_its_runner(serve: Serve) -> None:
    runner = serve("--healthy-after", "1000")
    plane = runner.attach()
    plane.wait(lambda m: m.kind is Kind.PROGRESS and m.json["text"] == "/health answers 503")
    count = len(plane.messages)
    server = pid_after(runner, "server pid ")
    runner.wait_line(lambda line: sum("GET /health" in each for each in runner.lines) > 6)
    assert len(plane.messages) == count  # its own log of our asking is none
    plane.stop(0)
    runner.exit_code()
    wait_gone(server)


def test_a_server_that_ends_while_it_starts_says_why(serve: Serve) -> None:
    plane = serve("--exit", "3:no such weights").attach()
    failed = plane.kind(Kind.FAILED).json
    assert failed["kind"] == "load" and failed["reason"].endswith("ended with exit code 3: no such weights")


def test_the_health_path_is_the_authors_or_a_guess(serve: Serve) -> None:
    assert ready(serve("--health", "/up", health="/up", port=0)).call(say("up"))
    assert ready(serve("--health", "/elsewhere")).call(say("answers 404 at our guess"))


@pytest.mark.parametrize("version", ["3.9", "3.13"])
def test_it_works_in_the_oldest_and_the_newest_python(serve: Serve, version: str) -> None:
    plane = ready(serve(python=interpreter(version)))
    assert plane.call(say("hello"))["choices"][0]["message"]["content"] == "hello"
    items, head = streamed(plane, say("a b"))
    assert len(items) == 3 and head["status"] == "ok"
    items, head = streamed(plane, say("break a b"))
    assert len(items) == 2 and "broke off" in head["message"]


# ---- end -------------------------------------------------------------------------------------------------------------------------


def test_a_server_that_dies_ends_the_runner_with_the_reason(serve: Serve) -> None:
    runner = serve()
    plane = ready(runner)
    plane.invoke(say("die now"))
    assert runner.exit_code() == 1
    runner.wait_line(lambda line: "ended with exit code 9: dying as asked" in line)
    assert not [message for message in plane.messages if message.kind is Kind.ANSWER]  # the node tells the callers of the death


def test_a_server_that_is_killed_without_work_ends_the_runner_too(serve: Serve) -> None:
    runner = serve()
    ready(runner)
    os.kill(pid_after(runner, "server pid "), signal.SIGKILL)
    assert runner.exit_code() == 1
    runner.wait_line(lambda line: "was ended by SIGKILL" in line)


def test_a_stop_lets_work_end_and_stops_the_server(serve: Serve) -> None:
    runner = serve()
    plane = ready(runner)
    server = pid_after(runner, "server pid ")
    asked = plane.invoke(say("slow"))
    plane.stop(5)
    assert plane.answer(asked)["choices"][0]["message"]["content"] == "slow"
    assert runner.exit_code() == 0
    assert not alive(server)
    assert not any("ended" in line for line in runner.lines)


def test_a_server_that_ignores_sigterm_is_killed(serve: Serve) -> None:
    runner = serve("--stubborn")
    plane = ready(runner)
    server = pid_after(runner, "server pid ")
    plane.stop(0)
    assert runner.exit_code(15) == 0
    assert not alive(server)


def test_a_killed_runner_takes_the_server_along(serve: Serve) -> None:
    runner = serve("--child")
    ready(runner)
    server, child = pid_after(runner, "server pid "), pid_after(runner, "child pid ")
    assert os.getpgid(server) == os.getpgid(child) == os.getsid(server) == runner.pid
    os.kill(runner.pid, signal.SIGKILL)
    wait_gone(server)
    os.killpg(runner.pid, signal.SIGKILL)  # as the keeper does when it reaps
    wait_gone(child)


# ---- requests --------------------------------------------------------------------------------------------------------------------


def streamed(plane: Plane, body: Any) -> tuple[list[Any], Any]:
    id = plane.invoke(body, stream=True)
    end = plane.end_of(id)
    head = end.json if end.kind is Kind.END else end.head
    return [json.loads(item.payload) for item in plane.items(id)], head


def test_a_stream_passes_item_by_item(serve: Serve) -> None:
    plane = ready(serve())
    items, head = streamed(plane, say("a b c"))
    assert [item["choices"][0]["delta"]["content"] for item in items[:-1]] == ["a", "b", "c"]
    assert items[-1]["choices"] == [] and head["status"] == "ok" and head["usage"] == {"input_tokens": 3, "output_tokens": 3}
    items, _ = streamed(plane, {"prompt": "d e", "raw": True})
    assert [item["choices"][0]["text"] for item in items[:-1]] == ["d", "e"]
    items, _ = streamed(plane, say("whole answer"))
    assert [item["object"] for item in items] == ["chat.completion"]
    id = plane.invoke(say("slow"), stream=True)
    first, third = plane.wait_items(id, 3)[0:3:2]
    assert third.at - first.at > 0.05  # as they are made
    plane.cancel(id)


@pytest.mark.parametrize("stream", [False, True])
def test_the_servers_errors_are_told_as_what_they_are(serve: Serve, stream: bool) -> None:
    plane = ready(serve())
    for text, status, why in [("refuse", "bad_request", "the prompt is no good"), ("busy", "raised", "503: too many")]:
        head = plane.end_of(plane.invoke(say(text), stream=stream)).head
        assert head["status"] == status and why in head["message"]
    for body, why in [([], "an object"), ({}, '"messages", a list'), ({"messages": []}, "at least one"), (say("a", prompt="b"), "exclude")]:
        head = plane.end_of(plane.invoke(body, stream=stream)).head
        assert head["status"] == "bad_request" and why in head["message"]
    assert plane.call(say("still there"))


def test_what_fails_in_the_middle_of_a_stream_ends_it_with_the_reason(serve: Serve) -> None:
    plane = ready(serve())
    items, head = streamed(plane, say("fail a b"))
    assert len(items) == 2 and head["status"] == "raised" and "out of luck" in head["message"]
    items, head = streamed(plane, say("break a b"))
    assert len(items) == 2 and head["status"] == "raised" and "broke off" in head["message"]
    assert plane.call(say("still there"))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_caller_who_leaves_closes_the_connection(serve: Serve, stream: bool, concurrency: int) -> None:
    runner = serve(serving={"concurrency": concurrency})
    plane = ready(runner)
    id = plane.invoke(say("slow"), stream=stream)
    if stream:
        plane.wait_items(id, 2)
    else:
        runner.wait_line(lambda line: "GET /v1/models" in line)
    plane.cancel(id)
    plane.end_of(id, 2)
    if stream:
        line = runner.wait_line(lambda line: "the client left after" in line, 5)
        assert int(line.split("after ")[1].split('"')[0]) < 100
    assert plane.call(say("next"))


def test_requests_go_to_the_server_at_the_same_time(serve: Serve) -> None:
    plane = ready(serve(serving={"concurrency": 4}))
    began = time.monotonic()
    for id in [plane.invoke(say(f"slow {number}")) for number in range(8)]:
        plane.answer(id)
    assert time.monotonic() - began < 8 * 0.3


def test_sleep_and_wake_are_calls_of_the_server(start: Start, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import fornada_sdk\n"
        "class Model(fornada_sdk.Model):\n"
        "    def run(self, request, context):\n"
        "        body = request.body.json\n"
        "        return {'done': getattr(self.engine, body['do'])()} if 'do' in body else self.engine.answer(body, context)\n"
    )
    args = [sys.executable, "-I", str(SERVER), *ON_SOCKET]
    command = {"args": args, **SOCKET, "sleep": "/sleep?level=1", "wake": "POST /wake_up"}
    plane = ready(start(folder=tmp_path, engine="command", command=command, entry="model.py"))
    assert plane.call({"do": "sleep"}) == {"done": None}
    assert "asleep" in plane.end_of(plane.invoke(say("hello"))).head["message"]
    assert plane.call({"do": "wake"}) == {"done": None}
    assert plane.call(say("hello"))


@pytest.mark.parametrize("entry", ["", "model.py"], ids=["no code", "an author's class"])
@pytest.mark.parametrize(
    "calls", [{}, {"sleep": "/sleep"}, {"sleep": "/sleep?level=1", "wake": "POST /wake_up"}], ids=["neither", "one", "both"]
)
def test_the_server_sleeps_where_it_has_a_call_for_either_way(start: Start, tmp_path: Path, entry: str, calls: dict[str, str]) -> None:
    (tmp_path / "model.py").write_text(
        "import fornada_sdk\n"
        "class Model(fornada_sdk.Model):\n"
        "    def run(self, request, context):\n"
        "        return self.engine.answer(request.body.json, context)\n"
    )
    command = {"args": [sys.executable, "-I", str(SERVER), *ON_SOCKET], **SOCKET, **calls}
    plane = start(folder=tmp_path, engine="command", command=command, entry=entry).attach()
    assert plane.ready().get("sleeps", False) is (len(calls) == 2)
    if len(calls) < 2:
        return
    before = plane.call(say("hello"))
    plane.send([frame(Kind.SLEEP, 0, encode({}))])
    assert "failed" not in plane.kind(Kind.SLEPT).json
    plane.send([frame(Kind.WAKE, 0, encode({}))])
    assert "failed" not in plane.kind(Kind.WOKEN).json
    assert plane.call(say("hello"))["choices"] == before["choices"]


def test_other_paths_take_requests_as_they_are(serve: Serve) -> None:
    plane = ready(serve(settings={"path": "/v1/embeddings", "paths": ["/v1/completions"], "model": "e"}))
    assert plane.call({"input": ["a"]})["asked"] == {"input": ["a"], "model": "e"}
    assert plane.call({"prompt": "a b", "path": "/v1/completions"})["choices"][0]["text"] == "a b"
    assert plane.end_of(plane.invoke({"input": "a", "path": "/metrics"})).head["status"] == "bad_request"
    failed = serve(settings={"path": "no path"}).attach().kind(Kind.FAILED)
    assert "is no path" in failed.json["reason"]


def test_both_styles_of_tools_and_schemas_reach_the_server_in_openais(serve: Serve) -> None:
    plane = ready(serve())
    schema = {"type": "object", "properties": {}}
    enveloped = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    bare = {"type": "json_schema", "json_schema": schema}
    for given in ({"guided_json": schema}, {"response_format": bare}, {"response_format": enveloped}):
        assert plane.call(say("a", **given))["asked"]["response_format"] == enveloped
    function = {"name": "f", "parameters": schema}
    for tool in (function, {"type": "function", "function": function}):
        assert plane.call(say("a", tools=[tool]))["asked"]["tools"] == [{"type": "function", "function": function}]
    called = {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"a": 1}}]}
    asked = plane.call({"messages": [called, {"role": "user", "content": "so"}]})["asked"]["messages"][0]
    assert asked["tool_calls"] == [{"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
