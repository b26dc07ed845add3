"""Removes what nothing refers to: environments, artifacts, results of conversions, bundles, SDK copies, and what kills left.

Something is kept if a registered version needs it, if it was handed out a short while ago (a deploy or a start is under
way), or if a live process was started from it. Whatever goes is renamed first: nobody ever finds half of it.
"""

import contextlib
import functools
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from fornada.core.ports import Pruned
from fornada.node.provision.contents import NAMED, PARTIAL, SEALS
from fornada.node.provision.conversions import FOLDER as CONVERTED
from fornada.node.provision.durable import TEMPORARY, TRASH, disk_bytes, remove, set_aside
from fornada.node.provision.environments import read_marker
from fornada.node.provision.held import held_if_free
from fornada.node.provision.lent import Lent

FORGOTTEN_S = 86400.0
_TEMPORARY = re.compile(rf"{re.escape(TEMPORARY)}([0-9a-f]+)-[0-9a-f]{{8}}(?:\.txt)?\Z")


class Needed(NamedTuple):
    """Names of what stays, by folder."""

    environments: frozenset[str]
    """Keys; and see `locks`."""
    locks: frozenset[str]
    """Hashes of locks: an environment made from one of them stays, whatever interpreter it was made with, while that is there."""
    artifacts: frozenset[str]
    converted: frozenset[str]
    bundles: frozenset[str]
    sdk: frozenset[str]


def prune(data_dir: Path, needed: Needed, *, locks: Path, lent: Lent) -> Pruned:
    """Removes the rest, but for what is lent by the time of its removal: `needed` is older. Blocking: for a thread."""
    before = disk_bytes(data_dir)
    in_use = _names_in_use(data_dir)
    drop = functools.partial(_prune, locks=locks, lent=lent)
    environments, artifacts, bundles, sdk = (data_dir / name for name in ("environments", "artifacts", "bundles", "sdk"))
    removed = {
        "environments": drop(environments, "environment", lambda path: path.name in in_use or _is_needed(path, needed)),
        "artifacts": drop(artifacts, "artifact", lambda path: path.name in needed.artifacts, only=re.compile(r"[0-9a-f]{64}\Z")),
        "converted": drop(artifacts / CONVERTED, "converted", lambda path: path.name in needed.converted),
        "bundles": drop(bundles, "bundle", lambda path: path.name in needed.bundles or path.name in in_use),
        "sdk": drop(sdk, "sdk", lambda path: path.name in needed.sdk or path.name in in_use),
        "partial": _prune_partial(artifacts / PARTIAL, locks) + sweep(data_dir, locks=locks),
    }
    for folder in (artifacts / SEALS, artifacts / NAMED):
        for path in _entries(folder):
            if not (artifacts / path.name).exists():
                remove(path)
    for path in _entries(artifacts / SEALS, hidden=True):
        remove(path)  # half-written seals; one that is being written now is only missed, and the file hashed again
    return Pruned({kind: count for kind, count in removed.items() if count}, max(0, before - disk_bytes(data_dir)))


def sweep(data_dir: Path, *, locks: Path) -> int:
    """Removes temporary names that a kill left: those whose lock nobody holds. How many."""
    count = 0
    kinds = {"environments": "environment", f"artifacts/{CONVERTED}": "converted", "bundles": "bundle", "sdk": "sdk"}
    for folder, kind in kinds.items():
        for path in _entries(data_dir / folder, hidden=True):
            match = _TEMPORARY.match(path.name)
            if path.name.startswith(TRASH):
                remove(path)
            elif match:
                with held_if_free(locks / f"{kind}-{match[1]}") as free:
                    if free:
                        remove(path)
                        count += 1
    for path in _entries(locks):
        with held_if_free(path):
            pass  # it goes as it is given up
    for path in _entries(data_dir / "cache", hidden=True):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > FORGOTTEN_S:  # a resolver's folder has no lock of its own
                remove(path)
                count += 1
    return count


def _prune(folder: Path, kind: str, stays: Callable[[Path], bool], *, locks: Path, lent: Lent, only: re.Pattern[str] | None = None) -> int:
    count = 0
    for path in _entries(folder):
        if stays(path) or (only and not only.match(path.name)):
            continue
        with held_if_free(locks / f"{kind}-{path.name}") as free, lent.unless_lent(path.name) as unlent:
            trash = set_aside(path) if free and unlent else None
        if trash:
            remove(trash)
            count += 1
    return count


def _prune_partial(folder: Path, locks: Path) -> int:
    """Beginnings of downloads, and work folders: an artifact that is being fetched holds its lock."""
    count = 0
    busy = False
    for path in _entries(folder):
        with held_if_free(locks / f"artifact-{path.name.removesuffix('.json')}") as free:
            busy = busy or not free
            if free:
                remove(path)
                count += 1
    if not busy and not _some_held(locks, "artifact-"):
        for path in _entries(folder, hidden=True):
            remove(path)
            count += 1
    return count


def _some_held(locks: Path, prefix: str) -> bool:
    for path in _entries(locks):
        if path.name.startswith(prefix):
            with held_if_free(path) as free:
                if not free:
                    return True
    return False


def unshared_packages(cache: Path) -> list[str]:
    """Names of the packages in uv's cache of which some unpacked wheel shares no file with an environment."""
    found: set[str] = set()
    for archive in _entries(cache / "archive-v0"):
        if not _is_shared(archive):
            found.update(path.name.split("-")[0] for path in archive.glob("*.dist-info"))
    return sorted(found)


def _is_shared(folder: Path) -> bool:
    for below, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                if os.lstat(os.path.join(below, name)).st_nlink > 1:
                    return True
    return False


def _is_needed(environment: Path, needed: Needed) -> bool:
    if environment.name in needed.environments:
        return True
    marker = read_marker(environment)
    return marker.get("lock_sha256") in needed.locks and os.path.exists(marker.get("interpreter", ""))


def _names_in_use(data_dir: Path) -> set[str]:
    """Folders of the data directory that a live process was started from, by their names: a runner's command line holds the
    interpreter of its environment and the SDK's folder, whoever started it."""
    found: set[str] = set()
    pattern = re.compile(re.escape(os.fsencode(data_dir)) + rb"/(?:environments|sdk|bundles)/([0-9a-f]+)")
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.update(name.decode() for name in pattern.findall(path.read_bytes()))
    return found


def _entries(folder: Path, *, hidden: bool = False) -> Iterable[Path]:
    """What lies in the folder; names with a dot in front only where asked for, and then only those."""
    with contextlib.suppress(OSError):
        return [Path(entry.path) for entry in os.scandir(folder) if entry.name.startswith(".") == hidden]
    return []
