"""An external server that speaks HTTP as OpenAI does (vLLM, llama-server, one of your own), run as the instance.

`load` starts [command] args (command_line.py has the placeholders) and asks the health path until it answers with success; the
node's load_timeout_s runs out meanwhile unless there is progress. Progress is a line of output until the server listens, and from
then on another answer of the health path: that it logs our asking is none.

A server that ends by itself ends the runner, with its last line as the reason. The runner's end is the server's (command_process.py).

Requests are those of text generation (command_request.py), answers are OpenAI's objects and chunks, as engine gguf gives them. What the
server refuses with 400, 404, 413, 415 or 422 is a BadRequest with its own words, any other error a failure of this request alone.
A caller who leaves closes the connection to the server within 50 ms. `serving.concurrency` requests go to it at the same time.

[settings]: `path`, `paths` (command_request.py), `model`: the name to ask the server for; else the first one of its /v1/models.
"""

from __future__ import annotations

import atexit
import http.client
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from fornada_sdk.api import BadRequest, Model
from fornada_sdk.api_context import Context
from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.engines import Loaded, LoadError, declared
from fornada_sdk.runner.engines.command_http import Exchange, Unwanted, events
from fornada_sdk.runner.engines.command_line import Line, Route, read_line
from fornada_sdk.runner.engines.command_process import Process
from fornada_sdk.runner.engines.command_request import TEXT, Asked, Paths, read_paths, read_request
from fornada_sdk.runner.engines.python import author

FIRST_PAUSE_S = 0.02
PAUSE_MOST_S = 1.0
HEALTH_S = 5.0
"""How long one look at the health path may take."""
STOP_S = 4.0
"""What a stop leaves to the server: less than the node's default kill_s, after which the runner itself is killed."""
CALL_S = 120.0
"""How long sleeping and waking may take: weights go to host memory and back."""
DEATH_S = 1.0
"""A connection breaks before the process is gone; so long it is given to be one and the same event."""
DIED_EXIT = 1
ANSWER_LONGEST = 192 * 1024 * 1024
MESSAGE_LONGEST = 2000
PROGRESS_LONGEST = 200
PROGRESS_EVERY_S = 0.5
REFUSALS = (400, 404, 413, 415, 422)
BROKEN = (OSError, http.client.HTTPException)
DONE = "[DONE]"
CHAT_WHOLE, CHAT_CHUNK = "chat.completion", "chat.completion.chunk"


class External(Model):
    """The model without code of its own."""

    engine: Server

    def run(self, inputs: Any, context: Context) -> Any:
        return self.engine.answer(inputs.body.json, context, stream=inputs.stream)


def load(assignment: Assignment, context: Context) -> Loaded:
    """Starts the server and waits until it is healthy. Raises LoadError, or what the author's code raises."""
    line = read_line(assignment, str(context.scratch))
    paths = read_paths(assignment.settings)
    target = author(assignment) if assignment.entry else External()
    if not isinstance(target, Model):
        raise LoadError(f"around engine {assignment.engine}, {assignment.entry} must hold a class derived from fornada_sdk.Model")
    if line.address.socket and os.path.lexists(line.address.socket):
        os.unlink(line.address.socket)
    process = Process(line.argv, cwd=line.cwd)
    atexit.register(process.stop, STOP_S)
    _wait_healthy(process, line, context)
    server = Server(process, line, paths, name=assignment.model)
    wanted = assignment.settings.get("model", "")
    server.theirs = str(wanted) if wanted else server.first_model() or assignment.model
    process.when_it_dies(_end_with)
    target.engine = server
    return Loaded(target, declared(assignment.tensors, "inputs"), declared(assignment.tensors, "outputs"))


class Server:
    """`Model.engine`: the running server."""

    def __init__(self, process: Process, line: Line, paths: Paths, *, name: str) -> None:
        self._process = process
        self._line = line
        self._paths = paths
        self._name = name
        self.theirs = name
        """What the server calls its model."""

    @property
    def pid(self) -> int:
        """The server's process, in this process' pid namespace."""
        return self._process.pid

    def run(self, inputs: Any) -> dict[str, Any]:
        """The whole answer to an input. Raises BadRequest. It can't be cancelled: `answer` can."""
        return self._whole(self._asked(inputs, stream=False), Context.inactive())

    def answer(self, inputs: Any, context: Context, *, stream: bool = False) -> dict[str, Any] | Iterator[dict[str, Any]]:
        """The answer, or an iterator of its chunks. It is given up within 50 ms once `context.cancelled`. Raises BadRequest."""
        asked = self._asked(inputs, stream=stream)
        return self._streamed(asked, context) if stream else self._whole(asked, context)

    @property
    def sleeps(self) -> bool:
        """There is a call for either way."""
        return self._line.sleep is not None and self._line.wake is not None

    def sleep(self, context: Context | None = None) -> None:
        """[command] sleep: the server gives device memory back. Does nothing where there is no such call. Raises RuntimeError."""
        self._told(self._line.sleep)

    def wake(self, context: Context | None = None) -> None:
        """[command] wake: it takes it again."""
        self._told(self._line.wake)

    def first_model(self) -> str:
        """The first name of /v1/models; empty where the server has no such thing."""
        try:
            with Exchange(self._line.address, "GET", "/v1/models", timeout_s=HEALTH_S) as exchange:
                return str(json.loads(exchange.read(ANSWER_LONGEST))["data"][0]["id"]) if exchange.status == 200 else ""
        except (*BROKEN, ValueError, LookupError, TypeError):
            return ""

    # ---- requests -------------------------------------------------------------------------------------------------------------

    def _asked(self, inputs: Any, *, stream: bool) -> Asked:
        return read_request(inputs, self._paths, model=self.theirs, stream=stream)

    def _whole(self, asked: Asked, context: Context) -> dict[str, Any]:
        try:
            with self._exchange(asked, context) as exchange:
                value = _object(exchange.read(ANSWER_LONGEST).decode("utf-8", "replace"))
        except Unwanted:
            return {}  # nobody will see it
        return self._shown(value, asked, context)

    def _streamed(self, asked: Asked, context: Context) -> Iterator[dict[str, Any]]:
        try:
            with self._exchange(asked, context) as exchange:
                if exchange.type != "text/event-stream":  # a server that doesn't stream this answers in one piece
                    yield self._shown(_object(exchange.read(ANSWER_LONGEST).decode("utf-8", "replace")), asked, context)
                    return
                for field, text in events(exchange.chunks()):
                    if text == DONE:
                        return
                    value = _object(text)
                    if field == "error" or value.get("error"):
                        raise RuntimeError(f"the server failed: {_message(value)}")
                    yield self._shown(value, asked, context, chunk=True)
                # Without an end, all may still be there: HTTP itself has said that nothing is missing.
        except Unwanted:
            return

    @contextmanager
    def _exchange(self, asked: Asked, context: Context) -> Iterator[Exchange]:
        try:
            with Exchange(self._line.address, "POST", asked.path, asked.body, cancelled=lambda: context.cancelled) as exchange:
                if exchange.status >= 300:
                    raise _refusal(exchange.status, exchange.read(ANSWER_LONGEST))
                yield exchange
        except BROKEN as error:
            if self._process.wait(DEATH_S):
                time.sleep(DEATH_S)  # the runner is about to end, and every caller is told of that
            raise RuntimeError(f"the server broke off: {type(error).__name__}: {error}") from None

    def _shown(self, value: dict[str, Any], asked: Asked, context: Context, *, chunk: bool = False) -> dict[str, Any]:
        if "model" in value:
            value["model"] = self._name
        if "choices" in value:  # what kind it is decides how callers see it, and not every server says so
            value.setdefault("object", "text_completion" if asked.path == TEXT else CHAT_CHUNK if chunk else CHAT_WHOLE)
        usage = value.get("usage")
        if isinstance(usage, dict):
            counts = {"input_tokens": usage.get("prompt_tokens"), "output_tokens": usage.get("completion_tokens")}
            context.usage.update({name: count for name, count in counts.items() if isinstance(count, int)})
        return value

    def _told(self, route: Route | None) -> None:
        if route is None:
            return
        try:
            with Exchange(self._line.address, route.method, route.path, timeout_s=CALL_S) as exchange:
                said = exchange.read(ANSWER_LONGEST)
                if exchange.status >= 300:
                    raise RuntimeError(f"the server answered {route.method} {route.path} with {exchange.status}: {_words(said)}")
        except BROKEN as error:
            raise RuntimeError(f"{route.method} {route.path}: {type(error).__name__}: {error}") from None


def _wait_healthy(process: Process, line: Line, context: Context) -> None:
    """Returns when the health path answers with success. Raises LoadError when the process ends before."""
    pause_s = FIRST_PAUSE_S
    heard = ""
    seen_lines = 0
    told_at = 0.0
    context.progress(f"started {os.path.basename(line.argv[0])}")
    while not process.wait(pause_s):
        pause_s = min(pause_s * 1.5, PAUSE_MOST_S)
        status = _health(line)
        if 200 <= status < 300 or (status == 404 and not line.health_given):
            return
        now = time.monotonic()
        said = f"{line.health.path} answers {status}" if status else ""
        if said and said != heard:
            heard, pause_s = said, FIRST_PAUSE_S
            context.progress(said)
        elif not heard and process.lines != seen_lines and now - told_at > PROGRESS_EVERY_S:
            seen_lines, told_at = process.lines, now
            context.progress(process.last_line[:PROGRESS_LONGEST])
    raise LoadError(process.end)


def _health(line: Line) -> int:
    """The health path's status; 0 where nobody answers."""
    try:
        with Exchange(line.address, line.health.method, line.health.path, timeout_s=HEALTH_S) as exchange:
            return exchange.status
    except BROKEN:
        return 0


def _end_with(reason: str) -> NoReturn:
    sys.stderr.write(f"fornada: {reason}\n")
    os._exit(DIED_EXIT)


def _refusal(status: int, body: bytes) -> Exception:
    said = _words(body)
    if status in REFUSALS:
        return BadRequest(f"the server refuses it: {said or f'status {status}'}")
    return RuntimeError(f"the server answered {status}: {said}")


def _words(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    try:
        return _message(json.loads(text))
    except ValueError:
        return " ".join(text.split())[:MESSAGE_LONGEST]


def _message(value: Any) -> str:
    """What an error's JSON says, in the forms that servers have for it."""
    for _ in range(3):
        inner = next((value[key] for key in ("error", "message", "detail") if value.get(key)), None) if isinstance(value, dict) else None
        if inner is None:
            break
        value = inner
    return (value if isinstance(value, str) else json.dumps(value))[:MESSAGE_LONGEST]


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise RuntimeError("the server's answer is no JSON object")
    return value
