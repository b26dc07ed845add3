"""Locks: requirements pinned to a version and to hashes, as text. Two locks that hold the same are one environment."""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from fornada.core.errors import InvalidSpec
from fornada.node.provision.interpreters import Interpreter
from fornada.node.provision.requirements import Requirement, normalised

READY_LOCK = "requirements.lock"
"""A lock in the model's folder: taken as it is where it holds what the model asks for."""
CONVERT_LOCK_ENDING = ".lock"
"""`convert.py` has its lock beside it, as `convert.py.lock`."""
KEY_LENGTH = 40
_ENTRY = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[A-Za-z0-9._, -]*\])?==([A-Za-z0-9.+!_-]+)\s*(;(?:(?!--hash)[^\\])*)?((?:--hash=sha256:[0-9a-f]{64}\s*)+)",
    re.ASCII,
)


class Entry(NamedTuple):
    """One pinned package."""

    name: str
    version: str
    line: str
    """In one line, hashes sorted: the same for the same content."""


def entries(text: str, *, where: str) -> tuple[Entry, ...]:
    """The lock's packages, sorted. Raises InvalidSpec for a line that isn't `name==version --hash=sha256:…`."""
    found = []
    for logical in re.sub(r"\\\r?\n", " ", text).splitlines():
        # One space for any run of them, as in requirements: how long the pattern takes must not be a stranger's choice.
        line = " ".join(re.sub(r"(^|\s)#.*", "", logical).split())
        if not line:
            continue
        match = _ENTRY.fullmatch(line)
        if not match:
            raise InvalidSpec(f"{where}: '{line[:80]}' is refused: a lock holds NAME==VERSION with --hash=sha256:… and nothing else")
        name, version, marker, hashes = match.groups()
        head = f"{normalised(name)}=={version}{' ' + ' '.join(marker.split()) if marker else ''}"
        found.append(Entry(normalised(name), version, f"{head} {' '.join(sorted(hashes.split()))}"))
    return tuple(sorted(set(found)))


def rendered(text: str, *, where: str) -> str:
    """The lock in its one form: sorted, without comments, one package a line. Raises InvalidSpec."""
    return "".join(f"{entry.line}\n" for entry in entries(text, where=where))


def covers(text: str, requirements: Iterable[Requirement], *, where: str) -> bool:
    """Whether the lock holds every requirement: its name, and its version where it is pinned. Raises InvalidSpec for no lock at all."""
    versions: dict[str, set[str]] = {}
    for entry in entries(text, where=where):
        versions.setdefault(entry.name, set()).add(entry.version)
    return all(item.name in versions and (not item.pinned or item.pinned in versions[item.name]) for item in requirements)


def environment_key(interpreter: Interpreter, lock: str) -> str:
    """Name of the environment: sha256 of the interpreter's build, machine and libc, and of the sorted lock."""
    lines = [entry.line for entry in entries(lock, where="lock")]
    content = json.dumps([interpreter.build, interpreter.path, interpreter.machine, interpreter.libc, lines])
    return hashlib.sha256(content.encode()).hexdigest()[:KEY_LENGTH]


def lock_hash(lock: str) -> str:
    """What an environment's marker remembers of its lock."""
    return hashlib.sha256(rendered(lock, where="lock").encode()).hexdigest()
