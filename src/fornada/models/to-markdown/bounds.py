"""How much of a file is taken. A library asks nobody: what a file unpacks to is looked at before one opens it."""

import contextlib
import ctypes
import gc
import io
import resource
import zipfile

import fornada_sdk

MOST_CHARACTERS = 8_000_000
MOST_CELLS = 500_000
MOST_ROWS = 1 << 20
"""Of a sheet, counting empty ones: as many as the programs that write them know."""
MOST_PAGES = 2000
MOST_UNPACKED = 128 << 20
MOST_MEMBERS = 10_000
MOST_MEMORY = 640 << 20
"""Less than `memory` in model.toml: a conversion that wants more fails, where the sandbox would end the process."""
MOST_LEFT = 192 << 20
"""Of its memory that this process goes on with, from one file to the next."""
_TOO_LONG = f"The file has more than {MOST_CHARACTERS} characters of text"


def archive(raw):
    """The zip archive. Its members are never longer than it says: Python reads no further."""
    found = zipfile.ZipFile(io.BytesIO(raw))
    if len(found.filelist) > MOST_MEMBERS:
        raise fornada_sdk.BadRequest(f"The file is an archive of more than {MOST_MEMBERS} parts")
    if sum(member.file_size for member in found.filelist) > MOST_UNPACKED:
        raise fornada_sdk.BadRequest(f"The file unpacks to more than {MOST_UNPACKED} bytes")
    return found


@contextlib.contextmanager
def memory():
    """Within it this process has so much memory of its own at most."""
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    known = [each for each in (before, most, MOST_MEMORY) if each != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(known), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


def tidy():
    """Gives back what a large file left: trees whose nodes know their parents stay until they are looked for, and the next file would
    find no room."""
    with open("/proc/self/statm") as file:
        held = int(file.read().split()[5]) * resource.getpagesize()
    if held > MOST_LEFT:
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


class Room:
    """What is left for a file's text."""

    def __init__(self):
        self._characters = 0
        self._cells = 0

    def text(self, count):
        """Takes so many characters."""
        self._characters += count
        if self._characters > MOST_CHARACTERS:
            raise fornada_sdk.BadRequest(_TOO_LONG)

    def cells(self, count):
        """Takes so many cells."""
        self._cells += count
        if self._cells > MOST_CELLS:
            raise fornada_sdk.BadRequest(f"The file has more than {MOST_CELLS} cells")
