"""Model folders, and the archives that are deployed. The probe's copies come from its own writer."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fornada.testing.probe import writer


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
    """A copy of the probe model under `name` in `folder`, with the given tables changed.

    As its command writes it, but in this process: thousands of tests deploy one, and each start of Python takes a fifth of a second
    of a processor. The command has its own tests (tests/unit/sdk/test_probe.py).
    """
    tables = [{key: writer.value_of(_spelled(value)) for key, value in (table or {}).items()} for table in (settings, serving, resources)]
    return writer.write_probe(folder, name=name, settings=tables[0], serving=tables[1], resources=tables[2])


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
