"""What is planted around an attacker, and how one sees afterwards whether it got there."""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bounds import bound
from tests.harness.processes import marked
from tests.harness.throwaway import REPOSITORY
from tests.harness.waiting import until
from tests.security.attacks.verdict import MARK, SECRET, Told

ENVIRON = "PLANTED_TOKEN"
"""Variable of whoever starts models; its value is a secret."""
ARTIFACT = b"the attacker's own weights"
MIB = 1024 * 1024
DELIVERY_S = 0.3
"""A signal or a datagram needs a moment to be noted."""


class Scene:
    """Files, sockets, memory and a neighbour below `directory`, all of the user `uid` (-1: the one who asks)."""

    def __init__(
        self, directory: Path, *, uid: int = -1, memory_bytes: int = 96 * MIB, pids: int = 64, scratch_bytes: int = 64 * MIB
    ) -> None:
        self.secrets = {name: SECRET + secrets.token_hex(8) for name in ("weights", "token", "environ", "leak", "neighbour")}
        self.directory = directory
        self.watched = [directory]
        """Folders in which no file with MARK in its name may appear."""
        self.artifacts = [directory / "artifacts"]
        """Folders in which no file may begin with MARK."""
        for name in ("home", "environment", "host", "artifacts"):
            (directory / name).mkdir(parents=True)
        for name, secret in (("weights", "weights"), ("token", "token"), ("leak", "leak")):
            (directory / name).write_text(self.secrets[secret])
            (directory / name).chmod(0o600)
        (directory / "artifacts" / "own").write_bytes(ARTIFACT)
        if uid >= 0 and os.geteuid() == 0:
            for path in (directory, *directory.iterdir()):
                os.chown(path, uid, uid)
        self._neighbour = self._start(uid)
        assert self._neighbour.stdout
        facts: Any = json.loads(self._neighbour.stdout.readline())
        told: Any = {
            "other_weights": str(directory / "weights"),
            "token_file": str(directory / "token"),
            "environment": str(directory / "environment"),
            "host_folder": str(directory / "host"),
            "protected": ["/", "/usr", "/etc"],
            "folders": [str(directory / "home")],
            "memory_bytes": memory_bytes,
            "pids": pids,
            "scratch_bytes": scratch_bytes,
            "part": "",
            **facts,
        }
        self.told: Told = told
        self._heard = 0
        self._changed: set[Path] = set()

    def _start(self, uid: int) -> "subprocess.Popen[bytes]":
        other: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": []} if uid >= 0 and os.geteuid() == 0 else {}
        return subprocess.Popen(
            [sys.executable, "-B", "-m", "tests.security.attacks.neighbour", str(self.directory), self.secrets["neighbour"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            env={**{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}, ENVIRON: self.secrets["environ"]},
            start_new_session=True,
            **other,
        )

    @property
    def leak(self) -> Path:
        """A file that is open in whoever starts models, by mistake."""
        return self.directory / "leak"

    def harm(self, *, expected: bool) -> list[str]:
        """What was done outside since this was last asked; a trace is taken away. `expected`: the attacker says that it got through."""
        deadline = time.monotonic() + bound(DELIVERY_S if expected else 0)
        while not (found := self._traces()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def _traces(self) -> list[str]:
        lines = (self.directory / "heard").read_text().splitlines()
        found, self._heard = [f"the neighbour got {line}" for line in lines[self._heard :]], len(lines)
        if self._neighbour.poll() is not None:
            found.append("the neighbour is dead")
        flat = [path for folder in (*self.told["protected"], *self.told["folders"]) if (path := Path(folder) / MARK).exists()]
        for path in {*self._files(self.watched), *flat}:
            if MARK in path.name:
                found.append(f"{path} was written")
                path.unlink()
        for path in self._files(self.artifacts):
            with open(path, "rb") as file:
                if file.read(len(MARK)) == MARK.encode() and path not in self._changed:
                    self._changed.add(path)
                    found.append(f"{path} was changed")
        return found

    @staticmethod
    def _files(folders: Sequence[Path]) -> "list[Path]":
        found = [Path(root) / name for folder in folders for root, _, names in os.walk(folder) for name in names]
        return [path for path in found if path.is_file() and not path.is_symlink()]

    def survivor(self, part: str) -> bool:
        """Whether a daemon that the attacker left is there, and stays for a while after the attacker's end; it is ended here."""
        try:
            until(lambda: not marked(f"{MARK}-{part}"), within_s=2, what="the daemon is gone")
        except TimeoutError:
            for process in marked(f"{MARK}-{part}"):
                os.kill(process.pid, 9)
            return True
        return False

    def close(self) -> None:
        """Ends the neighbour."""
        self._neighbour.communicate()
