"""Reads a deployed bundle, tar+gzip from a stranger, into memory: a pure function of its bytes, bounded in all it may cost.

What comes out are plain files with relative names. Links inside the folder become copies; whatever leads out of it, is no
file, is there twice or unpacks to too much is refused, naming the entry.
"""

import contextlib
import gzip
import io
import tarfile
import unicodedata
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from fornada.core.errors import InvalidSpec, TooLarge
from fornada.core.ports import BundleFile
from fornada.core.resources import format_size

MOST_ENTRIES = 10_000
LARGEST_UNPACKED = 256 * 1024 * 1024
"""Bytes of all files together, unless the bundle itself is larger than half of it: then twice its size."""
LARGEST_HEADER = 64 * 1024
"""Of one entry with all its extensions. tarfile makes twenty bytes and more of each of them, and goes a call deeper for each extension."""
LONGEST_PATH = 512
DEEPEST = 32
CHUNK = 65536
LEFT_OUT = frozenset(["__pycache__", ".git", ".hg", ".svn", ".DS_Store", "__MACOSX"])
"""Never part of a model: what an interpreter, a version control or a file manager left."""
LEFT_OUT_ENDINGS = (".pyc", ".pyo")
MARKS = ("model.toml", "model.py")
"""A folder with one of these is a model."""
_BROKEN = (
    tarfile.TarError,
    EOFError,
    zlib.error,
    gzip.BadGzipFile,
    UnicodeError,
    ValueError,
    OverflowError,
    IndexError,
    KeyError,
    RecursionError,
)
Files = dict[str, BundleFile]


class Bundle(NamedTuple):
    """A model's folder."""

    files: Files
    top: str
    """Name of the folder that was packed, empty where its files were packed without it."""


def read_bundle(data: bytes, *, most_entries: int = MOST_ENTRIES, largest: int = LARGEST_UNPACKED) -> Bundle:
    """The bundle's files. Raises InvalidSpec, TooLarge."""
    unpacking = _Unpacking(limit=max(largest, 2 * len(data)))
    stream = _Bounded(data, unpacking.limit)
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_entries_with_bounded_headers(stream)) as archive:
            for number, member in enumerate(archive):
                if number >= most_entries:
                    raise TooLarge(f"the bundle has more than {most_entries} entries")
                unpacking.take(archive, member)
    except _BROKEN as error:
        raise InvalidSpec(f"the bundle is no tar+gzip: {' '.join(str(error).split())[:200] or type(error).__name__}") from None
    unpacking.resolve_links()
    _refuse_files_as_folders(unpacking.files)
    return _without_top(unpacking.files)


def is_left_out(path: str) -> bool:
    """Whether the path never belongs to a model."""
    parts = path.split("/")
    return path.endswith(LEFT_OUT_ENDINGS) or any(part in LEFT_OUT or part.startswith("._") for part in parts)


class _Bounded(io.RawIOBase):
    """The unpacked stream, as far as the limit: a header may announce gigabytes, and tarfile would read them into memory."""

    def __init__(self, data: bytes, limit: int) -> None:
        self._stream = gzip.GzipFile(fileobj=io.BytesIO(data), mode="rb")
        # Headers and padding: two blocks of 512 bytes a file, and some for long names.
        self._left = self._limit = limit + MOST_ENTRIES * 4096
        self._header_left: int | None = None

    @contextlib.contextmanager
    def header(self) -> Iterator[None]:
        """What is read inside is one entry's header. An extension of it is read within."""
        if self._header_left is not None:
            yield
            return
        self._header_left = LARGEST_HEADER
        try:
            yield
        finally:
            self._header_left = None

    def read(self, size: int = -1) -> bytes:
        chunks = []
        wanted = self._left + 1 if size < 0 else size
        while wanted > 0 and (chunk := self._stream.read(min(wanted, CHUNK))):
            self._left -= len(chunk)
            if self._left < 0:
                raise TooLarge(f"the bundle unpacks to more than {format_size(self._limit)}")
            if self._header_left is not None:
                self._header_left -= len(chunk)
                if self._header_left < 0:
                    raise TooLarge(f"the bundle holds an entry whose header takes more than {format_size(LARGEST_HEADER)}")
            wanted -= len(chunk)
            chunks.append(chunk)
        return b"".join(chunks)


def _entries_with_bounded_headers(stream: _Bounded) -> type[tarfile.TarInfo]:
    class Entry(tarfile.TarInfo):
        @classmethod
        def fromtarfile(cls, tarfile: tarfile.TarFile) -> "Entry":
            with stream.header():
                return super().fromtarfile(tarfile)

    return Entry


class _Unpacking:
    """What was found so far."""

    def __init__(self, *, limit: int) -> None:
        self.limit = limit
        self.files: Files = {}
        self._links: dict[str, str] = {}
        self._total = 0

    def take(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        if member.isdir():
            return
        path = _checked(member.name)
        if is_left_out(path):
            return
        if path in self.files or path in self._links:
            raise InvalidSpec(f"the bundle holds '{path}' twice")
        if member.issym():
            self._links[path] = _target(path, member.linkname)
        elif member.islnk():
            self._links[path] = _checked(member.linkname)
        elif member.isreg() and not member.issparse():
            self._count(member.size)
            content = archive.extractfile(member)
            data = content.read() if content else b""
            if len(data) != member.size:
                raise InvalidSpec(f"the bundle ends within '{path}'")
            self.files[path] = BundleFile(data, bool(member.mode & 0o100))
        else:
            raise InvalidSpec(f"the bundle holds '{path}', which is no plain file")

    def resolve_links(self) -> None:
        """Turns links into copies of what they point at."""
        copies: Files = {}
        for path, target in self._links.items():
            seen = {path}
            while target in self._links and target not in seen:
                seen.add(target)
                target = self._links[target]
            if target not in self.files:
                raise InvalidSpec(f"the bundle's link '{path}' points at '{target}', which is no file in it")
            self._count(len(self.files[target].data))
            copies[path] = self.files[target]
        self.files.update(copies)

    def _count(self, size: int) -> None:
        self._total += size
        if self._total > self.limit:
            raise TooLarge(f"the bundle unpacks to more than {format_size(self.limit)}")


def _checked(name: str) -> str:
    """The entry's path in its one form. Raises InvalidSpec."""
    shown = name.encode("utf-8", "replace").decode()[:100]
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidSpec(f"the bundle holds a name that isn't UTF-8: '{shown}'") from None
    if name.startswith("/"):
        raise InvalidSpec(f"the bundle holds the absolute path '{shown}'")
    parts = [part for part in unicodedata.normalize("NFC", name).split("/") if part not in ("", ".")]
    if ".." in parts or not parts:
        raise InvalidSpec(f"the bundle holds the path '{shown}', which leads out of it")
    path = "/".join(parts)
    if "\\" in path or any(unicodedata.category(character) == "Cc" for character in path):
        raise InvalidSpec(f"the bundle holds a name with a backslash or a control character: {shown!r}")
    if len(path.encode()) > LONGEST_PATH or len(parts) > DEEPEST or any(len(part.encode()) > 255 for part in parts):
        raise InvalidSpec(f"the bundle holds a path that is too long or too deep: '{shown}…'")
    return path


def _target(path: str, link: str) -> str:
    """Where a symbolic link at `path` points. Raises InvalidSpec where that is outside."""
    parts = path.split("/")[:-1]
    for part in link.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part == ".." or link.startswith("/"):
            raise InvalidSpec(f"the bundle's link '{path}' leads out of it, to '{link[:100]}'")
        elif part not in ("", "."):
            parts.append(part)
    return _checked("/".join(parts)) if parts else ""


def _refuse_files_as_folders(files: Files) -> None:
    for path in files:
        parts = path.split("/")
        for end in range(1, len(parts)):
            if "/".join(parts[:end]) in files:
                raise InvalidSpec(f"the bundle holds '{'/'.join(parts[:end])}' both as a file and as a folder")


def _without_top(files: Files) -> Bundle:
    if any(mark in files for mark in MARKS):
        return Bundle(files, "")
    tops = {path.split("/", 1)[0] for path in files}
    if len(tops) == 1:
        (top,) = tops
        inside = {path.removeprefix(f"{top}/"): file for path, file in files.items()}
        if any(mark in inside for mark in MARKS):
            return Bundle(inside, top)
    raise InvalidSpec("the bundle is no model: neither model.toml nor model.py lies at its top")
