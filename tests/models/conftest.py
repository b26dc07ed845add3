"""The shipped models, each in a real runner with its real environment and weights, once for all tests of a run."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

import fornada.models
from tests.models.environments import UV, artifact, environment, made, run, spec_of
from tests.models.runner import Runner

MODELS = Path(fornada.models.__path__[0])

StartRunner = Callable[..., Runner]


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartRunner]:
    """Starts a runner with a model's folder; `changes` are put over the assignment. All of them end with the run."""
    running: list[Runner] = []

    def start_model(folder: Path, **changes: object) -> Runner:
        spec = spec_of(folder)
        place = tmp_path_factory.mktemp("runner")
        assignment = {
            "instance": f"i-{len(running)}",
            "model": spec.name,
            "version": "0" * 12,
            "account": "local",
            "engine": spec.engine,
            "folder": str(folder),
            "entry": spec.python.entry,
            "artifacts": {each.path: str(artifact(folder, each)) for each in spec.artifacts},
            "scratch": str(place),
            "settings": spec.settings,
            "task": spec.task,
            "resources": {"memory_bytes": spec.resources.memory, "threads": spec.resources.threads},
            "device": {"id": "cpu", "kind": "cpu", "memory_bytes": 0},
            "serving": {"concurrency": spec.serving.concurrency, "max_batch": spec.serving.max_batch, "max_wait_ms": 0},
            "load_attempt": 1,
            "load_count": 1,
            "tensors": {"inputs": [], "outputs": []},
            "release": "test",
            **changes,
        }
        runner = Runner(environment(folder / "requirements.lock"), assignment, place / "output")
        running.append(runner)
        return runner

    yield start_model
    for runner in running:
        runner.close()


@pytest.fixture(scope="session")
def shipped(start: StartRunner) -> Callable[[str], Runner]:
    """A running model of the catalogue by the name of its folder, started when it is first asked for."""
    return functools.cache(lambda slug: start(MODELS / slug))


@pytest.fixture(scope="session")
def classifier(start: StartRunner) -> Runner:
    return start(MODELS / "efficientnet-lite0")


@pytest.fixture(scope="session")
def embedder(start: StartRunner) -> Runner:
    return start(MODELS / "minilm")


@pytest.fixture(scope="session")
def chat(start: StartRunner) -> Runner:
    return start(MODELS / "smollm2-135m-instruct")


@pytest.fixture(scope="session")
def writer(start: StartRunner) -> Runner:
    """Speech to text."""
    return start(MODELS / "whisper-tiny-en")


@pytest.fixture(scope="session")
def photographs() -> Path:
    """The pictures that scikit-image ships: coffee.png, chelsea.png, astronaut.png and more."""
    lock = Path(__file__).parent / "pictures.lock"

    def unpack(target: Path) -> None:
        run(UV, "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", target, "-r", lock)

    return made("pictures", unpack) / "skimage" / "data"


@pytest.fixture(scope="session")
def coffee() -> Image.Image:
    """The example that the classifier ships."""
    with Image.open(MODELS / "efficientnet-lite0" / "example" / "request.jpg") as image:
        return image.convert("RGB")
