"""Runs code behind the sandbox's walls, as root or as an ordinary user, and says what became of it."""

import dataclasses
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bounds import bound

SRC = Path(__file__).resolve().parents[3] / "src"
DRIVER = Path(__file__).parent / "driver.py"
INSTANCE_UID = 200_017
DIES_S = bound(5)
"""For a neighbour that must die (`dies_s`)."""
LONGEST_S = 40.0


@dataclasses.dataclass(frozen=True)
class Result:
    """How one program fared."""

    code: int
    out: str
    failed: str
    """The one line of EnterFailed; empty where the program was executed."""
    steps: dict[str, float]
    """Microseconds of each step."""
    neighbour: int | None
    """How the neighbour ended; None while it lives, or where there is none."""
    fork_us: float

    @property
    def said(self) -> Any:
        """What the code printed, as JSON."""
        assert self.code == 0, (self.failed, self.code, self.out)
        return json.loads(self.out)


class Cage:
    """One way to start instances: `user` is the ordinary user's uid, None for root."""

    def __init__(self, place: Path, python: str, user: int | None) -> None:
        self.python = python
        self.user = user
        self.place = place
        """A folder of the host that the instance's uid can reach."""

    @property
    def identity(self) -> tuple[int, int] | None:
        """Who an instance is outside, if that isn't who started it."""
        return (INSTANCE_UID, INSTANCE_UID) if self.user is None else None

    @property
    def uid(self) -> int:
        return INSTANCE_UID if self.user is None else self.user

    def folder(self, name: str) -> Path:
        """An empty folder that belongs to instances."""
        made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.place))
        os.chown(made, self.uid, -1)
        return made

    def file(self, folder: Path, name: str, content: str) -> Path:
        """A file that an instance's uid owns: no right of files keeps it from writing there."""
        path = folder / name
        path.write_text(content)
        os.chown(path, self.uid, -1)
        return path

    def run(self, code: str, *arguments: str, **asked: Any) -> Result:
        """One program of Python."""
        (result,) = self.run_all(code, *arguments, **asked)
        return result

    def run_all(
        self,
        code: str,
        *arguments: str,
        files: list[tuple[Path | str, str]] | None = None,
        without: tuple[str, ...] = (),
        level: str = "namespaces",
        argv: list[str] | None = None,
        env: dict[str, str] | None = None,
        **asked: Any,
    ) -> list[Result]:
        """`copies` programs at once, `dies_s`: how long a neighbour may live. `files` are (path, access), `without` names walls that are left out."""
        told = {
            "files": [(str(path), access) for path, access in files or ()],
            "without": without,
            "level": level,
            "argv": [*(argv or [self.python, "-I", "-B"]), "-c", code, *arguments],
            "env": env or {"LANG": "C.UTF-8"},
            "identity": self.identity,
            "python": self.python,
            **asked,
        }
        become = [] if self.user in (None, os.geteuid()) else ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
        done = subprocess.run(
            [*become, self.python, "-B", str(self.place / "driver.py")],
            input=json.dumps(told),
            capture_output=True,
            text=True,
            timeout=bound(LONGEST_S + 20),
            env={"PYTHONPATH": str(self.place), "LONGEST_S": str(bound(LONGEST_S)), "LANG": "C.UTF-8"},
            cwd="/",
        )
        assert done.returncode == 0 and done.stdout, (done.returncode, done.stderr)
        return [
            Result(
                one["code"],
                one["out"],
                one.get("failed", ""),
                dict(one.get("steps", ())),
                one.get("neighbour"),
                one["fork_us"],
            )
            for one in json.loads(done.stdout)
        ]


def cage(user: int | None, python: str) -> Iterator[Cage]:
    place = Path(tempfile.mkdtemp(prefix="fornada-cage-", dir="/var/tmp"))  # not /tmp, of which instances have their own
    try:
        place.chmod(0o755)
        shutil.copytree(SRC / "fornada_sdk" / "sandbox", place / "fornada_sdk" / "sandbox", ignore=shutil.ignore_patterns("__pycache__"))
        (place / "fornada_sdk" / "__init__.py").touch()
        shutil.copy(DRIVER, place)
        yield Cage(place, python, user)
    finally:
        shutil.rmtree(place)


def ordinary_user() -> int | None:
    """The uid of somebody who isn't root: this process's own, else any account's. None if there is none."""
    if os.geteuid() != 0:
        return os.geteuid()
    people = [entry.pw_uid for entry in pwd.getpwall() if 1000 <= entry.pw_uid < 60000]
    return people[0] if people else 65534


def everybodys_python() -> str | None:
    """An interpreter that an ordinary user can execute."""
    if os.geteuid() != 0:
        return sys.executable
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if os.access(path, os.X_OK) and subprocess.run([path, "-c", "import sys; sys.exit(sys.version_info < (3, 9))"]).returncode == 0:
            return path
    return None
