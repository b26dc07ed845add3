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


def extended(kind: bytes, *, extensions: int, size: int) -> bytes:
    """A model with an entry before which that many extensions of that many bytes stand, and with `size` bytes of holes' list."""
    raw = io.BytesIO()
    for _ in range(extensions):
        record = b"11 path=ab\n"
        raw.write(entry("x", kind, size=len(record)).tobuf(tarfile.USTAR_FORMAT) + record.ljust(512, b"\0"))
    if size:
        sparse = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n25 GNU.sparse.realsize=1\n25 GNU.sparse.name=model\n"
        raw.write(entry("x", kind, size=len(sparse)).tobuf(tarfile.USTAR_FORMAT) + sparse.ljust(512, b"\0"))
    holes = (b"%d\n" % (size // 4) + b"0\n" * (size // 2)) if size else b""
    raw.write(entry("holes", tarfile.REGTYPE, size=len(holes)).tobuf() + holes.ljust(-(-len(holes) // 512) * 512, b"\0"))
    return gzip.compress(raw.getvalue() + b"\0" * 1024)
