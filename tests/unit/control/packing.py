"""Bundles by hand, good and hostile."""

import gzip
import io
import tarfile
from collections.abc import Mapping

MODEL = b"def handle_request(request, context):\n    return {}\n"


def toml(name: str = "@test/a", more: str = "") -> bytes:
    return f'name = "{name}"\n{more}\n'.encode()


def pack(files: Mapping[str, bytes | tarfile.TarInfo], *, modes: Mapping[str, int] | None = None) -> bytes:
    """tar+gzip of the files; a TarInfo stands for an entry without content."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, content in files.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            entry.mode = (modes or {}).get(path, 0o644)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def entry(path: str, kind: bytes, link: str = "", size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(path)
    made.type = kind
    made.linkname = link
    made.size = size
    return made


def bomb(size: int) -> bytes:
    """A file of zeros: a thousandth of it as a bundle."""
    header = tarfile.TarInfo("zeros")
    header.size = size
    squeezed = io.BytesIO()
    with gzip.GzipFile(fileobj=squeezed, mode="wb") as stream:
        stream.write(header.tobuf())
        for _ in range(size // 1_000_000):
            stream.write(b"\0" * 1_000_000)
    return squeezed.getvalue()
