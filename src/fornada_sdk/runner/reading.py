"""A thread that reads the wire, and the end of the process where it fails: nobody would hear a request, a CANCEL or the keeper any more,
while the runner stood there as if it were ready."""

from __future__ import annotations

import os
import threading
from typing import Callable

from fornada_sdk.runner.answers import print_traceback

DEAF_EXIT = 71


def reader(read: Callable[[], None], *, name: str) -> threading.Thread:
    """A thread for `read`, which returns when nothing more is to be read. It isn't started yet."""

    def run() -> None:
        try:
            read()
        except BaseException as error:  # noqa: BLE001 - whatever it is, such as want of memory for a long body
            try:
                # By itself and first: where memory is short a traceback may be too much.
                os.write(2, b"fornada: the thread that reads the wire failed: %b\n" % type(error).__name__.encode())
                print_traceback(error)
            finally:
                os._exit(DEAF_EXIT)

    return threading.Thread(target=run, name=name, daemon=True)
