"""Model folders, and the archives that are deployed. The probe's copies come from `python -m fornada.testing.probe`."""

import io
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bounds import bound


def packed(folder: Path) -> bytes:
    """`folder` as the tar+gzip that PUT /api/v1/models/NAME takes: members relative to the folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path in sorted(folder.rglob("*")):
            if "__pycache__" not in path.parts:
                archive.add(path, arcname=str(path.relative_to(folder)), recursive=False)
    return out.getvalue()


def archive(members: Mapping[str, str | bytes]) -> bytes:
    """A tar+gzip of the given files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        for name, content in members.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            made.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def write_folder(folder: Path, members: Mapping[str, str | bytes]) -> Path:
    """The given files below `folder`, which is made."""
    for name, content in members.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def write_probe(
    folder: Path,
    name: str,
    *,
    settings: Mapping[str, Any] | None = None,
    serving: Mapping[str, Any] | None = None,
    resources: Mapping[str, Any] | None = None,
) -> Path:
    """A copy of the probe model under `name` in `folder`, with the given tables changed."""
    command = [sys.executable, "-m", "fornada.testing.probe", str(folder), "--name", name]
    for flag, table in (("--set", settings), ("--serving", serving), ("--resources", resources)):
        for key, value in (table or {}).items():
            command += [flag, f"{key}={_spelled(value)}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=bound(30), check=False)
    assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
    return folder


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
