"""An attempt as a model folder that is deployed: model.toml, the generic model.py, the attempt and what it shares with others."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tests.security.attacks.judge import Attempt
from tests.security.attacks.verdict import Told

HERE = Path(__file__).parent
PLACE = "tests/security/attacks"
SHARED = ("verdict.py", "kernel.py", "arenas.py")


def bundle(attempt: Attempt, told: Told, artifact: Path) -> dict[str, str]:
    """The files of its model. `artifact` becomes its weights."""
    return {
        "model.toml": _model_toml(attempt, told, artifact),
        "model.py": (HERE / "model.py").read_text(),
        **shared_files([attempt.name]),
    }


def model_name(attempt: Attempt) -> str:
    return f"@attack/{attempt.name.replace('_', '-')}"


def shared_files(names: Sequence[str]) -> dict[str, str]:
    """The modules of the attempts `names`, and what they import of ours. a48 uses a35's daemon."""
    wanted = [*SHARED, *(f"attempts/{name}.py" for name in {*names, "a35_daemon"})]
    return {f"{PLACE}/{file}": (HERE / file).read_text() for file in wanted}


def _model_toml(attempt: Attempt, told: Told, artifact: Path) -> str:
    resources = {
        "memory": told["memory_bytes"],  # the attempt's own RESOURCES come over it
        "pids": told["pids"],
        "scratch": told["scratch_bytes"],
        **getattr(attempt.module, "RESOURCES", {"device": "cpu"}),
    }
    depends = attempt.says("DEPENDS")
    lines = [
        f'name = "{model_name(attempt)}"',
        "[python]",
        'dependencies = ["poison==1.0"]\npreload = ["poison"]' if depends else "",
        "[resources]",
        *(f"{key} = {value!r}" for key, value in resources.items()),
        "[serving]",
        "timeout_s = 30",
        "[settings]",
        f'attempt = "{attempt.name}"',
        "[[artifacts]]",
        'path = "weights.bin"',
        f'sha256 = "{hashlib.sha256(artifact.read_bytes()).hexdigest()}"',
        f'source = ["file:{artifact}"]',
    ]
    return "\n".join(lines) + "\n"
