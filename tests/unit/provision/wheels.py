"""Wheels by hand: a package of a few bytes, in whatever version a test needs."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes] | None = None,
    *,
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
) -> Path:
    """NAME-VERSION-TAG.whl whose module NAME has VERSION, unless `files` says otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    metadata = "".join(f"Requires-Dist: {one}\n" for one in requires)
    content = {
        **(files if files is not None else {f"{name}/__init__.py": f"VERSION = {version!r}\n".encode()}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    record = []
    with zipfile.ZipFile(path, "w") as archive:
        for inside, data in content.items():
            archive.writestr(zipfile.ZipInfo(inside, date_time=(2026, 1, 1, 0, 0, 0)), data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{inside},sha256={digest},{len(data)}")
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD", date_time=(2026, 1, 1, 0, 0, 0)), "\n".join([*record, f"{info}/RECORD,,", ""]))
    return path
