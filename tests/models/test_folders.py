"""What every model that ships with the package has: a spec, a lock without addresses, an example, a licence and a story."""

import json
import re
from pathlib import Path

import jsonschema_rs
import pytest

from fornada.core.ports import BundleFile
from fornada.edge.tasks import task_of
from fornada.node.provision.locks import rendered
from fornada.node.provision.resolving import ready_lock
from tests.models.conftest import MODELS
from tests.models.environments import spec_of

FOLDERS = sorted(path.parent for path in MODELS.glob("*/model.toml"))
WEIGHTS = (".onnx", ".pth", ".pb", ".keras", ".tflite", ".safetensors", ".gguf", ".bin")
ENTRY = re.compile(r"[a-z0-9][a-z0-9._-]*==\S+( ; [^\\]+)? \\(\n    --hash=sha256:[0-9a-f]{64} \\)*\n    --hash=sha256:[0-9a-f]{64}\n")
SOURCE = re.compile(r"pypi:[a-z0-9-]+==[0-9.]+#\S+|https://github\.com/[a-z-]+/[a-z0-9_-]+/raw/[a-z0-9]+/\S+")


def pinned(requirement: str) -> bool:
    return re.fullmatch(r"[a-z0-9._-]+==[0-9][0-9a-z.]*", requirement) is not None


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_there_are_models_to_look_at() -> None:
    assert {folder.name for folder in FOLDERS} >= {"efficientnet-lite0", "minilm"}


def test_its_spec_names_licence_description_and_visibility(folder: Path) -> None:
    spec = spec_of(folder)
    assert spec.name == f"@fornada/{folder.name}"
    assert spec.license and len(spec.description) > 40 and spec.visibility == "node"
    assert all(pinned(requirement) for requirement in spec.python.dependencies)


def test_its_artifacts_come_from_packages_or_public_repositories_and_are_named_by_content(folder: Path) -> None:
    for artifact in spec_of(folder).artifacts:
        assert re.fullmatch(r"[0-9a-f]{64}", artifact.sha256)
        assert artifact.source and all(SOURCE.fullmatch(source) for source in artifact.source)
        if artifact.convert:
            assert (folder / artifact.convert.script).is_file()
            assert all(pinned(requirement) for requirement in artifact.convert.dependencies)


def test_its_locks_hold_hashes_alone_and_every_dependency(folder: Path) -> None:
    spec = spec_of(folder)
    locks = {folder / "requirements.lock": spec.python.dependencies}
    locks |= {folder / f"{each.convert.script}.lock": each.convert.dependencies for each in spec.artifacts if each.convert}
    for lock, dependencies in locks.items():
        text = lock.read_text()
        assert "".join(match.group() for match in ENTRY.finditer(text)) == text, f"{lock} holds something else than pins and hashes"
        assert all(re.search(rf"^{re.escape(requirement)} ", text, re.MULTILINE) for requirement in dependencies)


def test_the_node_takes_its_locks_as_they_are(folder: Path) -> None:
    files = {str(path.relative_to(folder)): BundleFile(path.read_bytes()) for path in folder.rglob("*") if path.is_file()}
    assert ready_lock(spec_of(folder), files) == rendered((folder / "requirements.lock").read_text(), where="the lock")


def test_what_converts_shares_the_environment_of_what_runs(folder: Path) -> None:
    for artifact in spec_of(folder).artifacts:
        if artifact.convert:
            assert (folder / f"{artifact.convert.script}.lock").read_bytes() == (folder / "requirements.lock").read_bytes()


def test_it_has_a_small_example_with_its_answer_and_no_weights(folder: Path) -> None:
    (request,) = (folder / "example").glob("request.*")
    assert request.stat().st_size <= 100_000
    json.loads((folder / "example" / "answer.json").read_text())
    if request.suffix != ".json":
        story = (folder / "example" / "SOURCE.txt").read_text()
        assert "CC0" in story or "Public domain" in story
    assert not [path for path in folder.rglob("*") if path.suffix in WEIGHTS or (path.is_file() and path.stat().st_size > 200_000)]


def test_its_example_fits_the_schemas_of_its_task(folder: Path) -> None:
    spec = spec_of(folder)
    task = task_of(spec.task)
    own = {side: json.loads((folder / file).read_text()) for side, file in (("in", spec.schema.input), ("out", spec.schema.output)) if file}
    jsonschema_rs.validate(own.get("out", dict(task.output)), json.loads((folder / "example" / "answer.json").read_text()))
    (request,) = (folder / "example").glob("request.*")
    given = json.loads(request.read_text()) if request.suffix == ".json" else {task.raw: list(request.read_bytes())}
    jsonschema_rs.validate(own.get("in", dict(task.input)), given)


def test_it_tells_where_everything_in_it_is_from(folder: Path) -> None:
    story = (folder / "README.md").read_text()
    spec = spec_of(folder)
    assert spec.license in story and all(alias in story for alias in spec.aliases)
    for source in (artifact.source[0] for artifact in spec.artifacts):
        if source.startswith("pypi:"):
            package, _, version = source.removeprefix("pypi:").partition("#")[0].partition("==")
            assert f"{package} {version}" in story
        else:
            owner, repository = source.split("/")[3:5]
            assert f"{owner}/{repository}" in story
