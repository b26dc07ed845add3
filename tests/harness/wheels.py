"""Tiny wheels, made here: a directory of them serves as [provision] find_links, so that tests of dependencies need no index."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def make_wheel(directory: Path, name: str, version: str, *, files: Mapping[str, str] | None = None, requires: Sequence[str] = ()) -> Path:
    """A pure wheel of `name` in `directory`; `files` default to one module that says its version."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    content = dict(files or {f"{module}/__init__.py": f"__version__ = {version!r}\n"})
    requirements = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    content[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requirements}"
    content[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in content.items())
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in content.items():
            archive.writestr(zipfile.ZipInfo(path, date_time=(2024, 1, 1, 0, 0, 0)), text)
    return wheel


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
