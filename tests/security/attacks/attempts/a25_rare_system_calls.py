"""Uses the system calls that most kernel exploits began with: bpf, userfaultfd, perf, io_uring, keyctl."""

import ctypes
import os

from fornada_sdk import Context
from tests.security.attacks.kernel import call
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "EPERM (filter)"

BPF_MAP_CREATE, KEYCTL_JOIN_SESSION = 0, 1
USER_MODE_ONLY = 1


def attempt(context: Context, told: Told) -> Verdict:
    def buffer(size: int, *words: int) -> "ctypes.Array[ctypes.c_char]":
        data = b"".join(word.to_bytes(4, "little") for word in words)
        return ctypes.create_string_buffer(data.ljust(size, b"\0"), size)

    def descriptor(name: str, *arguments: "int | ctypes.Array[ctypes.c_char]") -> None:
        os.close(call(name, *arguments))

    return first_that_works(
        {
            "bpf": lambda: descriptor("bpf", BPF_MAP_CREATE, buffer(128, 2, 4, 4, 1), 128),
            "userfaultfd": lambda: descriptor("userfaultfd", USER_MODE_ONLY),
            "perf": lambda: descriptor("perf_event_open", buffer(128, 1, 128), 0, -1, -1, 0),
            "io_uring": lambda: descriptor("io_uring_setup", 4, buffer(120)),
            "keyctl": lambda: call("keyctl", KEYCTL_JOIN_SESSION, 0),
        }
    )
