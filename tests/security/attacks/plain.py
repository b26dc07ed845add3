"""One attempt as a plain child process without any wall, in the namespace that a test made for it. Prints the outcome as JSON."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

from fornada_sdk import Context
from tests.bounds import bound
from tests.harness.throwaway import REPOSITORY
from tests.security.attacks.judge import PACKAGE, Outcome, judge, named
from tests.security.attacks.scene import ENVIRON, Scene

LIMIT_S = 30


def main() -> None:
    folder, name, part = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    attempt = named(name)
    scene = Scene(folder / "scene")
    scratch = folder / "scratch"
    scratch.mkdir()
    weights = scene.directory / "artifacts" / "own"
    leak = os.open(scene.leak, os.O_RDONLY)
    order = {"name": name, "told": {**scene.told, "part": part}, "artifacts": {"weights": str(weights)}, "scratch": str(scratch)}
    command = [sys.executable, "-B", "-c", f"from {__spec__.name} import child; child()"]
    done = subprocess.run(
        command,
        input=json.dumps(order).encode(),
        stdout=subprocess.PIPE,
        timeout=bound(LIMIT_S),
        pass_fds=(leak,),
        cwd=REPOSITORY,
        env={**{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}, ENVIRON: scene.secrets["environ"]},
        start_new_session=True,
        check=False,
    )
    if done.returncode != 0:
        outcome = Outcome(name, part, False, "", broken=f"it ended with {done.returncode}")
    else:
        verdict = json.loads(done.stdout)
        harm = scene.harm(expected=verdict["worked"])
        if attempt.says("OUTLIVES") and scene.survivor(part):
            harm.append("its daemon lives on")
        outcome = judge(attempt, verdict, harm=harm, secrets=set(scene.secrets.values()), part=part)
    print(json.dumps(outcome.as_json()))
    scene.close()


def child() -> None:
    """The attacker's process."""
    order = json.load(sys.stdin)
    module = importlib.import_module(f"{PACKAGE}.{order['name']}")
    context = Context.inactive(artifacts=order["artifacts"], scratch=order["scratch"])
    print(json.dumps(module.attempt(context, order["told"])))


if __name__ == "__main__":
    main()
