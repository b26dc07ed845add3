"""Environments of the catalogue's models that nodes have built, kept between runs.

Few tests are about building one, which takes seconds of a processor for compiling alone: the others' nodes find it built. Whose node
builds it when it is nowhere yet is left to chance, and what is kept is exactly what it made (hard links, where the file system has them).
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import fornada.models
from fornada.node.provision.durable import remove
from fornada.node.provision.environments import is_complete, read_marker
from fornada.node.provision.locks import lock_hash
from tests.harness.node import Node
from tests.models.environments import CACHE

STORE = CACHE / "nodes"
MODELS = Path(fornada.models.__path__[0])


class BuiltNode(Node):
    """A node that finds the environments of some models of the catalogue built, if a node ever built them here."""

    def __init__(self, directory: Path, *, models: Sequence[str], **settings: Any) -> None:
        super().__init__(directory, **settings)
        self._models = models

    def spawn(self) -> "subprocess.Popen[bytes]":
        self.data_dir.mkdir(mode=0o700, exist_ok=True)
        for found in _of(self._models, STORE):
            _link(found, self.data_dir / "environments" / found.name)
        return super().spawn()

    def wait(self, *, within_s: float = 20) -> int:
        status = super().wait(within_s=within_s)
        for found in _of(self._models, self.data_dir / "environments"):
            _link(found, STORE / found.name)
        return status


def _of(models: Iterable[str], folder: Path) -> Iterator[Path]:
    locks = {lock_hash((MODELS / model.rpartition("/")[2] / "requirements.lock").read_text()) for model in models}
    for path in folder.glob("[!.]*"):
        if is_complete(path) and read_marker(path).get("lock_sha256") in locks:
            yield path


def _link(source: Path, target: Path) -> None:
    """A copy under its name, or none: another process may be making the same one."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".tmp-{target.name}-{os.getpid()}")
    try:
        shutil.copytree(source, temporary, symlinks=True, copy_function=_linked)
        with suppress(OSError):
            temporary.rename(target)
    finally:
        remove(temporary)


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
