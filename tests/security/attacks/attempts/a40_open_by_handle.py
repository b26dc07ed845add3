"""Opens a file by its number, past every mount."""

import ctypes
import os
import struct

from fornada_sdk import Context
from tests.security.attacks.kernel import call
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "EPERM"
PROVES_NOTHING = "an ordinary user may not in any case"

AT_FDCWD, ROOM = -100, 128


def attempt(context: Context, told: Told) -> Verdict:
    def open_it() -> None:
        handle = ctypes.create_string_buffer(struct.pack("<Ii", ROOM, 0), ROOM + 8)
        try:
            call("name_to_handle_at", AT_FDCWD, str(context.scratch).encode(), handle, ctypes.create_string_buffer(4), 0)
        except OSError:
            # Inode 2, the root folder of most disks: what an attacker would guess.
            handle = ctypes.create_string_buffer(struct.pack("<IiII", 8, 1, 2, 0), ROOM + 8)
        root = os.open(context.scratch, os.O_RDONLY)
        try:
            os.close(call("open_by_handle_at", root, handle, os.O_RDONLY))
        finally:
            os.close(root)

    return first_that_works({"open_by_handle_at": open_it})
