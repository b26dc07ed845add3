"""Clients from npm, unchanged, against a node with the catalogue's models, as a newcomer would use them: the Workers runtime, wrangler,
the Vercel AI SDK, OpenAI's own. What runs in Node lies in npm/, and imports nothing of ours.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fornada.core.finetunes import CONFIG, WEIGHTS
from tests.docs.pages import DOCS, REPOSITORY, blocks
from tests.harness.adapters import config, weights
from tests.harness.built import BuiltNode
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.http.node_js import HERE, Npm, npm
from tests.http.test_keys import create

pytestmark = [pytest.mark.clients, pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(900)]

MODELS = ("@fornada/smollm2-135m-instruct", "@fornada/minilm", "@fornada/vader", "@fornada/to-markdown")
LOAD_S = 400
"""An environment of a hundred megabytes may be built on the way."""
NAMED_URL = "http://127.0.0.1:8250"
"""Where the pages' node is."""
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


@pytest.fixture(scope="module")
def packages() -> Npm:
    return npm()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose models are ready."""
    node = BuiltNode(tmp_path_factory.mktemp("npm"), models=MODELS)
    try:
        node.start()
        for model in MODELS:
            loaded = node.act(model, "load", timeout_s=LOAD_S)
            assert loaded.status == 200, loaded.body
        for name in ("image-to-text", "flux"):
            node.deploy(f"@contract/{name}", REPOSITORY / "examples/contract" / name)
        yield node
        assert node.stop() == 0, node.said()
    finally:
        node.destroy()


@pytest.fixture(scope="module")
def worker(packages: Npm, node: Node, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the Worker's calls came to."""
    said = packages.script(HERE / "with_miniflare.mjs", f"{node.url}/", str(HERE / "worker.mjs"), cwd=tmp_path_factory.mktemp("worker"))
    answers: dict[str, Any] = json.loads(said)
    return answers


def test_a_worker_runs_models(worker: dict[str, Any]):
    labels = {each["label"]: each["score"] for each in worker["classifies"]}
    assert labels["POSITIVE"] > labels["NEGATIVE"]
    assert UUID.match(worker["tells_its_request_s_id"])
    assert worker["embeds"] == [2, 384]
    assert "Paris" in worker["generates"]
    raw = worker["gives_the_raw_response"]
    assert (raw["status"], raw["type"]) == (200, "application/json") and UUID.match(raw["id"])


def test_a_worker_streams_both_ways(worker: dict[str, Any]):
    lines = [line.removeprefix("data: ") for line in worker["streams"].split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    assert "Paris" in "".join(json.loads(line)["response"] for line in lines[:-1])
    as_it_is, in_a_form = (each["description"] for each in worker["sends_a_stream"])
    assert as_it_is.endswith("of 8 bytes") and in_a_form.endswith("of 100 bytes")


def test_a_worker_talks_with_a_model(worker: dict[str, Any]):
    assert worker["talks"] == {"status": 101, "code": 1000, "heard": ["Update", "StartOfTurn", "Update", "Update"]}
    assert worker["is_refused_a_talk"] == {"status": 400, "code": 5007}


def test_a_worker_turns_files_into_markdown(worker: dict[str, Any]):
    good, odd = worker["turns_files_into_markdown"]
    assert good[:2] == ["good.html", "markdown"] and good[2].startswith("# Orange")
    assert odd == ["odd.xyz", "error", "Unsupported file type"]
    assert {".html", ".pdf", ".xlsx"} <= set(worker["lists_formats"])


def test_a_worker_goes_through_a_gateway(worker: dict[str, Any], node: Node):
    through = worker["goes_through_a_gateway"]
    assert through["cached"] == ["MISS", "HIT"] and through["same"]
    assert through["log"] == ["workers-ai", "@fornada/vader", True, True] and through["patched"] == 1
    assert through["url"] == f"{node.url}/gateway/v1/local/default/workers-ai"
    assert worker["falls_back_in_a_gateway"] == {"status": 200, "step": "1", "success": True}


def test_a_worker_lists_models(worker: dict[str, Any]):
    assert worker["lists_models"] == [["@fornada/vader", "Text Classification"]]


def test_a_worker_hears_why_not(worker: dict[str, Any]):
    unknown = worker["hears_of_an_unknown_model"]
    assert unknown["message"].startswith("5007: No such model @cf/nope/nope or task")
    assert (unknown["name"], unknown["code"], unknown["status"]) == ("AiError", 5007, 400)
    bad = worker["hears_of_bad_input"]
    assert bad["code"] == 5006 and "'text'" in bad["message"]
    assert "'page'" in worker["hears_of_bad_parameters"]["message"]


def test_a_worker_s_list_of_requests_is_done_as_a_job(worker: dict[str, Any]):
    assert sorted(worker["queues_and_polls"]) == [["one", True], ["two", True]]


def test_the_page_s_worker_works_as_it_is_written_and_with_a_key_in_its_address(packages: Npm, new_node: StartNode, tmp_path: Path):
    locked = new_node().start()
    (written,) = [block.text for block in blocks(DOCS / "how-to" / "workers-binding.md") if "miniflare" in block.words]
    assert f"{NAMED_URL}/" in written
    key = create(locked, "local", "user")["key"]
    assert "POSITIVE" in packages.script(written.replace(NAMED_URL, f"{locked.url}/binding/{key}"), cwd=tmp_path)


# ---- the Vercel AI SDK


def assert_sdk(said: dict[str, Any]) -> None:
    assert "Paris" in said["generates"] and said["finishes"] == "stop"
    assert said["counts"]["outputTokens"] > 0
    assert "Paris" in "".join(said["streams"]) and len(said["streams"]) > 2
    assert (said["embeds"], said["embeds_many"]) == (384, [384] * 3)
    ((name, given),) = said["calls_tools"]
    assert name == "weather" and isinstance(given["location"], str)
    assert "No such model @cf/nope/nope or task" in said["hears_why_not"]


def test_workers_ai_provider_over_rest(packages: Npm, node: Node, tmp_path: Path):
    assert_sdk(json.loads(packages.script(HERE / "with_vercel.mjs", node.url_of("workers-ai-provider (npm)"), cwd=tmp_path)))


def test_workers_ai_provider_in_a_worker(packages: Npm, node: Node, tmp_path: Path):
    worker = packages.bundle(HERE / "vercel_worker.mjs", cwd=tmp_path)
    assert_sdk(json.loads(packages.script(HERE / "with_miniflare.mjs", f"{node.url}/", str(worker), cwd=tmp_path)))


# ---- OpenAI


def test_openai_s_client_for_node(packages: Npm, node: Node, tmp_path: Path):
    said = json.loads(packages.script(HERE / "with_openai.mjs", f"{node.url}/v1", cwd=tmp_path))
    assert "Paris" in said["asks"] and said["streams"] == said["asks"] and said["counts"]["completion_tokens"] > 0
    ((name, given),) = said["calls_tools"]
    assert name == "get_weather" and isinstance(given["location"], str)
    assert (said["embeds"], said["embeds_packed"]) == (384, [384, 384])
    assert set(MODELS) <= set(said["lists"]) and said["finds"] == MODELS[0]
    assert said["hears_why_not"] == {"name": "NotFoundError", "status": 404, "code": "5007", "type": "not_found_error"}


# ---- wrangler


def wrangler(packages: Npm, node: Node, cwd: Path, *words: str) -> str:
    environ = {
        "CLOUDFLARE_API_BASE_URL": f"{node.url}/client/v4",
        "CLOUDFLARE_API_TOKEN": "any",
        "CLOUDFLARE_ACCOUNT_ID": "local",
        "WRANGLER_SEND_METRICS": "false",
        "CI": "true",
    }
    return packages.run(["wrangler", "ai", *words], cwd=cwd, environ=environ)


def test_wrangler_lists_models(packages: Npm, node: Node, tmp_path: Path):
    shown = wrangler(packages, node, tmp_path, "models")
    assert "@fornada/vader" in shown
    said = wrangler(packages, node, tmp_path, "models", "--json")
    assert set(MODELS) <= {each["name"] for each in json.loads(said[said.index("[") :])}


def test_wrangler_hands_a_fine_tune_in_and_lists_it(packages: Npm, node: Node, tmp_path: Path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / CONFIG).write_bytes(config())
    (adapter / WEIGHTS).write_bytes(weights())
    wrangler(packages, node, tmp_path, "finetune", "create", MODELS[0], "tone", str(adapter))
    shown = wrangler(packages, node, tmp_path, "finetune", "list")
    assert "tone" in shown
