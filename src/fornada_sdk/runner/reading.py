"""A thread that reads the wire, and the end of the process where it fails: nobody would hear a request, a CANCEL or the keeper any more,
while the runner stood there as if it were ready."""

from __future__ import annotations

import _thread
import os
from typing import Callable

from fornada_sdk.runner.answers import print_traceback

DEAF_EXIT = 71


def start_reader(read: Callable[[], None]) -> None:
    """A thread for `read`, which returns when nothing more is to be read."""

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

    # Not by threading.Thread, whose start waits until the new thread has had the processor: on a busy machine that is a time slice of
    # every start of a model. Nothing asks for it by its object, and it ends with the process.
    _thread.start_new_thread(run, ())
