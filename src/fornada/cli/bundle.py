"""Packs a model folder: the same files give the same archive, whenever, by whomever and from wherever they are packed."""

import gzip
import hashlib
import io
import os
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fornada.cli.failures import CommandFailed, one_line
from fornada.cli.paths import unreachable
from fornada.core.resources import format_size

LEFT_OUT = frozenset(
    [
        *(".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".ipynb_checkpoints", ".DS_Store"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".fornada", ".idea", ".vscode"),
    ]
)
"""Names that are never packed, at any depth. A .gitignore is not asked: it often names the weights."""
LEFT_OUT_ENDINGS = (".pyc", ".pyo", ".swp", "~")
LARGEST = 64 * 1024 * 1024
"""[server] max_bundle, unless the node says otherwise."""


class Bundle(NamedTuple):
    """A packed folder. `name` is what model.toml says, "" where it says nothing."""

    content: bytes
    sha256: str
    name: str
    files: tuple[str, ...]


def pack(folder: Path, *, largest: int = LARGEST) -> Bundle:
    """tar+gzip of the folder. Raises CommandFailed with one line for what can't be packed."""
    name = _declared_name(folder)
    packed = io.BytesIO()
    files = []
    # No name and no time in the gzip header, no owner and no time in the tar: nothing but the files decides.
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as squeezed:
        with tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path, relative in _files(folder, folder.resolve()):
                _add(archive, path, relative)
                files.append(relative)
                if packed.tell() > largest:
                    raise _too_large(folder, largest)
    if packed.tell() > largest:
        raise _too_large(folder, largest)
    content = packed.getvalue()
    return Bundle(content, hashlib.sha256(content).hexdigest(), name, tuple(files))


def default_name(folder: Path) -> str:
    """The name of a model that declares none."""
    return f"@local/{folder.resolve().name}"


def _declared_name(folder: Path) -> str:
    if not os.path.isdir(folder):
        raise CommandFailed(f"{folder}: {unreachable(folder) or 'not a folder'}; name the folder that holds model.toml or model.py")
    declared = folder / "model.toml"
    if not declared.is_file():
        if not (folder / "model.py").is_file():
            raise CommandFailed(f"{folder}: neither model.toml nor model.py in it, so it is no model; write a model.py with handle_request")
        return ""
    try:
        name = tomllib.loads(declared.read_text(encoding="utf-8")).get("name", "")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{declared} is no TOML: {one_line(str(error))}; mend it and deploy again") from None
    except OSError as error:
        raise CommandFailed(f"{declared}: {error.strerror}") from None
    return name if isinstance(name, str) else ""


def _files(folder: Path, root: Path, prefix: str = "") -> Iterator[tuple[Path, str]]:
    """(path, name in the archive), in the order of the names."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        for entry in entries:
            if entry.name in LEFT_OUT or entry.name.endswith(LEFT_OUT_ENDINGS):
                continue
            path = Path(entry.path)
            if entry.is_symlink():
                _check_link(path, root)
            if entry.is_dir():
                yield from _files(path, root, f"{prefix}{entry.name}/")
            elif entry.is_file():
                yield path, f"{prefix}{entry.name}"
            else:
                raise CommandFailed(f"{path} is neither a file nor a folder; take it out of the model's folder")
    except OSError as error:
        raise CommandFailed(f"{error.filename or folder}: {error.strerror}; deploy needs to read all of the folder") from None


def _check_link(path: Path, root: Path) -> None:
    # A link to a folder could lead in circles, one to the outside would send what nobody looked at.
    target = path.resolve()
    if not target.is_relative_to(root) or not target.is_file():
        raise CommandFailed(f"{path} links to {target}; only links to files inside the folder are packed: copy what it points at")


def _add(archive: tarfile.TarFile, path: Path, relative: str) -> None:
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            entry = tarfile.TarInfo(relative)
            entry.size = status.st_size
            entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
            archive.addfile(entry, file)
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror or error}; deploy needs to read all of the folder") from None


def _too_large(folder: Path, largest: int) -> CommandFailed:
    return CommandFailed(
        f"{folder} packs to more than {format_size(largest)}, the limit of a bundle ([server] max_bundle); "
        "leave out what the model doesn't need, or name its weights as [[artifacts]] with a source"
    )
