"""A keeper's zygotes (zygote_keeper.py) and what they say, in every form: without walls, as root, as an ordinary user."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bounds import bound
from tests.harness.walls import remove_named
from tests.security.sandbox.cage import everybodys_python, ordinary_user

SRC = Path(__file__).resolve().parents[2] / "src"
PROGRAM = Path(__file__).parent / "zygote_keeper.py"
ZYGOTE = "import sys; sys.path.insert(0, sys.argv[1]); from fornada_sdk.runner.zygote import main; main()"
QUIET = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
FIRST_UID, FIRST_BLOCK = 210_000, 1_999_000_000
MODEL = """
import os, sys
def handle_request(request, context):
    asked = request.body.json
    if "run" in asked:
        space = {"asked": asked, "context": context}
        exec(asked["run"], space)
        return space["answer"]
    return asked
"""


class Stand:
    """One such keeper. `user` None: as whoever runs the tests."""

    def __init__(self, level: str, *, user: bool, python: str = sys.executable, fork_s: float = 10.0) -> None:
        self.level = level
        self.user = ordinary_user() if user and os.geteuid() == 0 else None
        self.place = Path(tempfile.mkdtemp(prefix="fornada-zygotes-", dir="/var/tmp"))  # instances have a /tmp of their own
        self.place.chmod(0o755)
        self.python = (everybodys_python() or python) if user else python
        interpreter = self.python if user else sys.executable
        self.src = self.place / "src"
        shutil.copytree(SRC, self.src, ignore=shutil.ignore_patterns("__pycache__"))
        run_dir = self.place / "run"
        run_dir.mkdir()
        if self.user is not None:
            os.chown(run_dir, self.user, -1)
        root = os.geteuid() == 0 and not user
        walls = {
            "level": level,
            "node": self.place.name,
            "run_dir": str(run_dir),
            "first_uid": FIRST_UID if root and level != "none" else 0,
            "uids": 100 if root and level != "none" else 0,
            "first_block": FIRST_BLOCK,
            "blocks": 4 if root else 0,
            "own_users": level != "none",
            "cgroup_namespace": True,
            "landlock": True,
            "scoped_signals": True,
        }
        become = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"] if self.user is not None else []
        program = shutil.copy(PROGRAM, self.place)
        with (self.place / "errors").open("wb") as errors:
            self.process = subprocess.Popen(
                [*become, interpreter, "-B", program, str(self.src), json.dumps({"walls": walls, "fork_s": bound(fork_s)})],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd="/",
                env={"PATH": os.environ["PATH"]},
            )
        self.events: list[dict[str, Any]] = []
        self._rest = b""
        self.hear("standing", "")

    # ---- orders

    def tell(self, do: str, **order: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **order}).encode() + b"\n")
        self.process.stdin.flush()

    def command(self, argv: list[str], files: list[tuple[str, str]], **more: Any) -> dict[str, Any]:
        environment = str(Path(self.python).parents[1])
        shown = [[environment, "read"], [str(self.src), "read"]] if environment != "/usr" else [[str(self.src), "read"]]
        sandbox = {"files": [*shown, *map(list, files)], "python": self.python, "temporary_bytes": 1 << 24, **more.pop("sandbox", {})}
        limits = {"open_files": 256, "processes": 64, **more.pop("limits", {})}
        return {"argv": argv, "env": {**QUIET, **more.pop("env", {})}, "cwd": "/", "limits": limits, "sandbox": sandbox, **more}

    def want(self, key: str = "z", *, modules: tuple[str, ...] = (), spares: int = 0, **more: Any) -> None:
        argv = [self.python, "-I", "-B", "-c", ZYGOTE, str(self.src), *modules]
        self.tell("want", zygote=key, spares=spares, **self.command(argv, [], **more))

    def ready(self, key: str = "z", **more: Any) -> dict[str, Any]:
        """A zygote that can fork."""
        self.forget("zygote", key)
        self.want(key, **more)
        return self.hear("zygote", key, state="ready")

    def spawn(self, name: str, key: str = "z", *, code: str = MODEL, **more: Any) -> None:
        folder, scratch = self.place / f"{name}-folder", self.place / f"{name}-scratch"
        for each in (folder, scratch):
            each.mkdir()
        (folder / "model.py").write_text(code)
        if self.user is not None:
            os.chown(scratch, self.user, self.user)
        assignment = {
            "instance": name,
            "model": "@test/m",
            "engine": "python",
            "folder": str(folder),
            "scratch": str(scratch),
            "release": "0",
        }
        command = self.command(["/no/such/program"], [(str(folder), "read"), (str(scratch), "write")], **more)
        self.tell("spawn", instance=name, zygote=key, assignment=assignment, memo={}, **{**command, "cwd": str(scratch)})

    def up(self, name: str, key: str = "z", **more: Any) -> dict[str, Any]:
        """An instance whose walls stand."""
        self.spawn(name, key, **more)
        return self.hear("up", name)

    def ask(self, name: str, **body: Any) -> Any:
        """An answer's body."""
        told = self.answer(name, **body)
        assert "body" in told and not told["head"].get("status"), (told, self.output(name))
        return told["body"]

    def answer(self, name: str, **body: Any) -> dict[str, Any]:
        self.forget("answer", name)
        self.tell("ask", instance=name, body=body)
        return self.hear("answer", name)

    def run(self, name: str, code: str) -> Any:
        """What `answer` is after the code has run in the instance."""
        return self.ask(name, run=code)

    def output(self, name: str) -> str:
        self.forget("output", name)
        self.tell("output", instance=name)
        return str(self.hear("output", name)["text"])

    def state(self, key: str = "z") -> dict[str, Any]:
        self.forget("state", key)
        self.tell("state", zygote=key)
        return self.hear("state", key)

    # ---- what happens

    def forget(self, what: str, name: str) -> None:
        self.events = [event for event in self.events if (event["what"], event["name"]) != (what, name)]

    def hear(self, what: str, name: str, *, within_s: float = 30.0, **fields: Any) -> dict[str, Any]:
        """The first such event. Fails with what came instead."""
        limit = time.monotonic() + bound(within_s)
        assert self.process.stdout is not None
        while True:
            for event in self.events:
                if (event["what"], event["name"]) == (what, name) and fields.items() <= event.items():
                    return event
            left = limit - time.monotonic()
            assert left > 0, f"no {what} {name} {fields}: {self.events[-6:]}; {self.said()}"
            if select.select([self.process.stdout], [], [], left)[0]:
                data = os.read(self.process.stdout.fileno(), 65536)
                assert data, f"it has ended: {self.events[-6:]}; {self.said()}"
                *lines, self._rest = (self._rest + data).split(b"\n")
                self.events += map(json.loads, lines)

    def heard(self, what: str, name: str) -> bool:
        """Whether it has happened by now."""
        self.forget("here", "")
        self.tell("look")
        self.hear("here", "")
        return any((event["what"], event["name"]) == (what, name) for event in self.events)

    def said(self) -> str:
        return (self.place / "errors").read_text(errors="replace")

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(bound(10))
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()
            remove_named(self.place.name)
            shutil.rmtree(self.place)
