"""Every model of the catalogue answers its own example through a real node, from its own environment and within its memory."""

import base64
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import fornada.models
from fornada.core.specs import read_spec
from fornada.edge.tasks import task_of
from tests.harness.fixtures import StartNode
from tests.harness.node import Node, run_path

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

MODELS = Path(fornada.models.__path__[0])
MIRROR = Path(__file__).parents[3] / "shared" / "models"
CONFIG = "[node]\nmax_resident = 3\n"
FIRST_S = 600
"""An environment of some hundred megabytes may be built on the way."""
TYPES = {".json": "application/json", ".jpg": "image/jpeg", ".png": "image/png", ".wav": "audio/wav"}


def test_every_model_of_the_catalogue_answers_its_example_in_every_form(new_node: StartNode) -> None:
    node = new_node(config=CONFIG, environ={"FORNADA_MIRROR": str(MIRROR)}).start()
    for folder in sorted(path.parent for path in MODELS.glob("*/model.toml")):
        spec = read_spec((folder / "model.toml").read_text())
        if not MIRROR.is_dir() and any(not each.source[0].startswith(("pypi:", "npm:")) for each in spec.artifacts):
            continue
        (request,) = (folder / "example").glob("request.*")
        answer = asked(node, spec.name, request.read_bytes(), TYPES.get(request.suffix, "application/octet-stream"))
        wanted = json.loads((folder / "example" / "answer.json").read_text())
        schema = json.loads((folder / spec.schema.output).read_text()) if spec.schema.output else dict(task_of(spec.task).output)
        jsonschema_rs.validate(schema, answer)
        if isinstance(wanted, list):
            assert answer[0]["label"] == wanted[0]["label"], spec.name
        if request.suffix != ".json":
            for form in (list(request.read_bytes()), base64.b64encode(request.read_bytes()).decode()):
                body = json.dumps({task_of(spec.task).raw: form}).encode()
                assert asked(node, spec.name, body, "application/json") == answer, spec.name
        for alias in spec.aliases:
            assert node.model(alias)["name"] == spec.name


def asked(node: Node, model: str, body: bytes, type: str) -> Any:
    headers = {"content-type": type, "x-timeout-ms": str(FIRST_S * 1000)}
    response = node.fetch("POST", run_path(model), body, headers=headers, timeout_s=FIRST_S)
    assert response.status == 200, f"{model}: {response.body[:500]!r}"
    return response.result
