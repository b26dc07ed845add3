"""Thousands of seeded changes of good requests, over every route that /openapi.json tells of, against a real node.

What the published schema rejects gets a 4xx that names the field, and loads nothing; everything else a success or a refusal
that is published. Never a 5xx, a hang, a traceback, or memory that grows with the number of requests.
"""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest

from tests.bounds import bound, count
from tests.harness.bundles import archive
from tests.harness.client import Closed, Connection, Response, strict_json
from tests.harness.metrics import Metrics
from tests.harness.node import DEFAULT_CONFIG, Node
from tests.http.fuzzing.examples import PNG, NoExample, example
from tests.http.fuzzing.mutations import Request, mutated

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

MUTATIONS = count(1000, long=10_000)
SEED = 20_261_130
DEADLINE = {"x-timeout-ms": "10000"}
"""Of every request: an environment that has to be built first isn't waited for."""
ANSWER_S = 20.0
"""Bound of any answer."""
GROWTH = 48 * 1024 * 1024
"""Bytes that the control plane may have more at the end than after the first third: caches fill up, leaks go on."""
TASKS = (
    "text-generation", "image-classification", "object-detection", "text-embeddings", "automatic-speech-recognition", "text-classification",
    "translation", "summarization", "text-to-image", "image-to-text", "text-to-speech", "custom",
)  # fmt: skip
TENSORS = "tensors"
"""What the models are called that take tensors: their routes are in vain at others."""
BY_VERB = {"chat": "text-generation", "completions": "text-generation", "responses": "text-generation", "messages": "text-generation",
           "embeddings": "text-embeddings", "transcriptions": "automatic-speech-recognition", "translations": "automatic-speech-recognition",
           "speech": "text-to-speech", "images": "text-to-image"}  # fmt: skip
STAND_IN = """
import json, pathlib
ANSWER = json.loads((pathlib.Path(__file__).parent / "answer.json").read_text())

def handle_request(request, context):
    given = request.body.json if request.body.bytes[:1] == b"{" else {}
    if "data" in ANSWER and "text" in given:
        texts = [given["text"]] if isinstance(given["text"], str) else given["text"]
        return {"shape": [len(texts), 2], "data": [[0.6, 0.8] for _ in texts]}
    if request.stream:
        return iter([{"response": "a"}, {"response": "b"}])
    return ANSWER
"""
FIXED = {
    "automatic-speech-recognition": {"text": "hello"},
    "text-to-speech": {"audio": "//sYwAAAAAAAAAAA"},  # how an MP3 begins
    "text-to-image": {"image": "iVBORw0KGgoAAAAA"},
}
"""Answers of the stand-ins where the schema allows some that a door can't use."""
ENDLESS = ("/api/v1/events", "/logs")
"""Routes whose answer may go on for ever: only its beginning is read."""
SPARED = ("DELETE /api/v1/models/{name}", "PUT /api/v1/models/{name}")
"""They would end or replace what the other requests run: theirs name a model that nobody else needs."""


@dataclass(frozen=True)
class Fuzzed:
    """A node with a model of every task: one that serves, and one that nothing may load."""

    node: Node
    document: dict[str, Any]
    schemas: dict[str, Any]
    """By task: JSON Schema of what `ai/run` takes."""


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    node = Node(tmp_path_factory.mktemp("fuzz"), config=f"{DEFAULT_CONFIG}[devices]\nfake = [{{ total = '1GiB' }}]\n")
    node.start()
    rng = random.Random(SEED)
    schemas = {}
    for task in TASKS:
        for name in (f"@fuzz/{task}", f"@fuzz/untouched-{task}"):
            toml = f'name = "{name}"\ntask = "{task}"\nengine = "python"\n'
            node.deploy(name, archive({"model.toml": toml, "model.py": STAND_IN, "answer.json": "{}"}))
        described = node.fetch("GET", f"/client/v4/accounts/local/ai/models/schema?model={quote(f'@fuzz/{task}')}").result
        schemas[task] = described["input"]
        answer = FIXED.get(task) or example(described["output"], rng)
        toml = f'name = "@fuzz/{task}"\ntask = "{task}"\nengine = "python"\n'
        node.deploy(f"@fuzz/{task}", archive({"model.toml": toml, "model.py": STAND_IN, "answer.json": json.dumps(answer)}))
    for name in (f"@fuzz/{TENSORS}", f"@fuzz/untouched-{TENSORS}"):
        node.deploy_probe(name)
    node.deploy("@fuzz/spare", archive({"model.toml": 'name = "@fuzz/spare"\n', "model.py": STAND_IN, "answer.json": "{}"}))
    document = node.fetch("GET", "/openapi.json").json()
    yield Fuzzed(node, document, schemas)
    assert node.stop() == 0, node.said()


def test_any_request_gets_an_answer_and_leaves_nothing(fuzzed: Fuzzed):
    node, rng = fuzzed.node, random.Random(SEED)
    begun = [
        Beginning(method, pattern, operation) for pattern, item in fuzzed.document["paths"].items() for method, operation in item.items()
    ]
    loads = _loads(node)
    wrong: list[str] = []
    resident = 0
    for number in range(MUTATIONS):
        begin = begun[number % len(begun)]
        request = mutated(begin.request(fuzzed, rng), rng)
        rejected, names = begin.rejects(fuzzed, request)
        if rejected:
            request = _untouched(request)
        complaint = _tried(fuzzed, begin, request, names if rejected else None)
        if complaint:
            wrong.append(
                f"#{number} {request.method} {request.target[:300]} {request.headers} {(request.body or b'')[:600]!r}\n    {complaint}"
            )
            assert len(wrong) < 25, "\n".join(wrong)
        if number == MUTATIONS // 3:
            resident = _resident(node)
    assert not wrong, "\n".join(wrong)
    assert _resident(node) - resident < GROWTH
    for task in (*TASKS, TENSORS):
        assert node.state(f"@fuzz/untouched-{task}") == "stopped", f"a body that the schema of {task} rejects loaded the model"
    assert {name: total for name, total in _loads(node).items() if "untouched" in name} == {
        name: total for name, total in loads.items() if "untouched" in name
    }
    node.deploy("@fuzz/after", archive({"model.toml": 'name = "@fuzz/after"\n', "model.py": STAND_IN, "answer.json": "{}"}))
    assert node.ready() and node.run("@fuzz/after", {}).status == 200
    said = node.said() + "".join(path.read_text(errors="replace") for path in (node.data_dir / "logs").rglob("*.log"))
    assert "Traceback" not in said, said[said.index("Traceback") - 500 :][:3000]


class Beginning:
    """One operation of the description, and good requests for it."""

    def __init__(self, method: str, pattern: str, operation: dict[str, Any]) -> None:
        self.label = f"{method.upper()} {pattern}"
        self._pattern = pattern
        self._method = method.upper()
        self._operation = operation
        self.statuses = {int(status) for status in operation["responses"]}
        self._content = operation.get("requestBody", {}).get("content", {})
        verb = next((part for part in reversed(pattern.split("/")) if part in BY_VERB), "")
        self._task = TENSORS if pattern.endswith((":predict", ":classify", ":regress", "/infer")) else BY_VERB.get(verb, "")
        self._runs = "/ai/run" in pattern

    def request(self, fuzzed: Fuzzed, rng: random.Random) -> Request:
        task = self._task or rng.choice(TASKS)
        model = "@fuzz/spare" if self.label in SPARED else f"@fuzz/{task}"
        values = {
            "account": "local",
            "model": model,
            "name": model,
            "id": model if "/models/" in self._pattern else "none",
            "device": "cuda:0",
            "label": "stable",
            "version": "stable",
        }
        path = re.sub(r"\{(\w+)\}", lambda found: quote(values.get(found[1], "1"), safe="/@"), self._pattern)
        made = Request(self.label, self._method, path, headers=DEADLINE)
        if not self._content:
            return made
        kind = rng.choice(list(self._content))
        schema = self._content[kind].get("schema", {})
        headers = {**DEADLINE, "content-type": kind}
        if "json" in kind and "jsonl" not in kind:
            try:
                value = self._json(fuzzed, schema, model, task, rng)
            except NoExample:
                value = {}
            return replace(made, value=value, headers=headers)
        if kind == "multipart/form-data":
            return replace(made, headers={**headers, "content-type": f"{kind}; boundary=b"}, data=_form(schema, model, rng))
        return replace(made, headers=headers, data=rng.choice((PNG, b"", b"plain text", b'{"a": 1}')))

    def _json(self, fuzzed: Fuzzed, schema: dict[str, Any], model: str, task: str, rng: random.Random) -> Any:
        if not self._runs:
            value = example(schema, rng)
            if isinstance(value, dict) and "model" in value:
                value["model"] = model
            return value
        inputs = example(fuzzed.schemas[task], rng)
        return inputs if "{model}" in self._pattern else {"model": model, "input": inputs}

    def rejects(self, fuzzed: Fuzzed, request: Request) -> tuple[bool, set[str]]:
        """Whether the published schema rejects the body of a request in which nothing but its JSON was changed, and the names
        that a refusal may give."""
        if not request.intact or request.value is None or request.query or not self._content or b"\\ud800" in (request.body or b""):
            return False, set()  # half a surrogate pair is no JSON
        value, schema = request.value, self._content.get("application/json", {}).get("schema", {})
        if self._runs and "{model}" in self._pattern:
            schema = fuzzed.schemas[request.path.rpartition("@fuzz/")[2]]
        elif self._runs:
            if not isinstance(value, dict) or not isinstance(value.get("model"), str) or not value["model"].startswith("@fuzz/"):
                return False, set()
            schema = fuzzed.schemas.get(value["model"].removeprefix("@fuzz/"), {})
            value = value.get("input")
            if value is None:
                value = {}
        if isinstance(value, dict) and ("requests" in value or "request_id" in value or "options" in value):
            return False, set()  # a job's, or the platform's
        errors = list(jsonschema.Draft202012Validator(schema).iter_errors(_without_nulls(value, schema)))
        named = value.get("model") if isinstance(value, dict) else None
        if isinstance(named, str) and named.removeprefix("@fuzz/") not in (*TASKS, TENSORS):
            return bool(errors), set()  # that there is no such model may be said first
        return bool(errors), {name for error in errors for name in _names(error)}


def _tried(fuzzed: Fuzzed, begin: Beginning, request: Request, names: set[str] | None) -> str:
    """What is wrong with the answer; empty: nothing. `names`: the body must be refused by one of them (any refusal, if empty)."""
    try:
        answer = _answer(fuzzed.node, request)
    except TimeoutError:
        return f"no answer after {ANSWER_S} s"
    except (Closed, ConnectionError) as error:
        # A stream whose deadline passes on the way ends so, that nobody takes it for whole.
        late = "x-timeout-ms" in request.headers and isinstance(request.value, dict) and request.value.get("stream")
        return "" if late else f"no answer: {error}"
    said = answer.body[:400]
    if answer.status >= 500 and answer.status != 501:
        return f"{answer.status}: {said!r}"
    if b"Traceback" in answer.body or b'File "/' in answer.body:
        return f"a traceback: {said!r}"
    if answer.status >= 400 and request.method != "HEAD":
        try:
            body = strict_json(answer.body)
            message = body["errors"][0]["message"]
        except (ValueError, KeyError, IndexError, TypeError):
            return f"a refusal that is no error body: {answer.status} {said!r}"
        also = request.value.keys() if isinstance(request.value, dict) else ()  # another field that is wrong, too
        also = (*also, "has no version")  # a number in the path
        if names is not None and names and not any(name and name in message for name in (*names, *also)):
            return f"it names none of {sorted(names)[:8]}: {message[:300]}"
    if names is not None and not 400 <= answer.status < 500:
        return f"the schema rejects it ({sorted(names)[:8]}), and the answer is {answer.status} {said!r}"
    unchanged = request.method == begin.label.partition(" ")[0] and request.path.startswith(begin.label.partition(" ")[2].partition("{")[0])
    if unchanged and request.intact and answer.status not in begin.statuses:
        return f"{answer.status} is not among the published {sorted(begin.statuses)}: {said!r}"
    return ""


def _answer(node: Node, request: Request) -> Response:
    headers = {name: value.encode("utf-8").decode("latin-1") for name, value in request.headers.items()}
    with Connection(node.address, timeout_s=bound(ANSWER_S)) as connection:
        connection.send_request(request.method, request.target.encode("utf-8").decode("latin-1"), request.body, headers)
        if any(route in request.path for route in ENDLESS) and request.method == "GET":
            head = connection.read_head()
            if head.chunked:
                return Response(head.status, head.headers, b"", 0, 0, 0)
            body = connection.rest() if "content-length" not in head.headers else connection._exactly(int(head.headers["content-length"]))
            return Response(head.status, head.headers, body, 0, 0, 0)
        return connection.read_response(of=request.method)


def _untouched(request: Request) -> Request:
    value = request.value
    if isinstance(value, dict) and isinstance(value.get("model"), str) and value["model"].startswith("@fuzz/"):
        return replace(request, value={**value, "model": value["model"].replace("@fuzz/", "@fuzz/untouched-")})
    return replace(request, path=request.path.replace("@fuzz/", "@fuzz/untouched-"))


def _without_nulls(value: Any, schema: Any) -> Any:
    """`null` means absent for what isn't required (docs/reference): the node leaves it out before it checks."""
    if not isinstance(value, dict) or not isinstance(schema, dict):
        return value
    required = schema.get("required", ())
    return {name: item for name, item in value.items() if item is not None or name in required}


def _names(error: jsonschema.ValidationError) -> Iterator[str]:
    """Names of fields that a refusal may give: of where it is wrong, what is missing, what is too much."""
    yield from (str(part) for part in error.absolute_path if isinstance(part, str) and part.isprintable() and part)
    if error.validator == "required" and isinstance(error.instance, dict):
        yield from (name for name in error.validator_value if name not in error.instance)
    for inner in error.context or ():
        yield from _names(inner)


def _form(schema: dict[str, Any], model: str, rng: random.Random) -> bytes:
    parts = []
    for name, kind in schema.get("properties", {"file": {"format": "binary"}}).items():
        data, extra = str(example(kind, rng)).encode(errors="replace"), ""
        if kind.get("format") == "binary" or name in ("file", "files"):
            data, extra = rng.choice((PNG, b'{"custom_id": "1"}\n', b"text")), '; filename="a.png"'
        if name == "model":
            data = model.encode()
        parts.append(b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (name.encode(), extra.encode(), data))
    return b"".join(parts) + b"--b--\r\n"


def _loads(node: Node) -> dict[str, float]:
    scrape = Metrics(node.fetch("GET", "/metrics").body.decode())
    found: dict[str, float] = {}
    for sample in scrape.of("fornada_model_loads_total"):
        found[sample.labels["model"]] = found.get(sample.labels["model"], 0) + sample.value
    return found


def _resident(node: Node) -> int:
    """Resident bytes of the control plane."""
    status = Path(f"/proc/{node.control_pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024
