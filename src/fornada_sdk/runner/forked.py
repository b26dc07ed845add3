"""A runner that a zygote has forked: what it makes of itself between the fork and the runner's own code.

A spare does what isn't any model's first, waits, and does the rest when it is given to one:

    FORK -> descriptors -> walls -> a new process' environment, seeds, threads -> runner.main
    FORK -> descriptors -> first half of the walls -> (TAKE) -> second half -> the same
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from fornada_sdk.runner.main import ASSIGNMENT_BYTES, PLAIN_SIGNAL, begin
from fornada_sdk.sandbox import enter, limits, plan, plan_json, syscalls
from fornada_sdk.sandbox.enter import EnterFailed
from fornada_sdk.sandbox.plan import BadPlan
from fornada_sdk.wire.channel import Channel, ChannelClosed, Message
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import Kind

FAILED_EXIT = 127
LOST_EXIT = 70
CHANNEL_FD, REPORT_FD, ZYGOTE_FD, FIRST_FD = 3, 4, 5, 6
DESCRIPTORS = 250
REPORT_LONGEST = 1000
_BLAS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads64_", "openblas_set_num_threads")
_OPENMP = ("omp_set_num_threads",)
_MKL = ("MKL_Set_Num_Threads",)
_LIBRARIES = (("openblas", _BLAS), ("libgomp", _OPENMP), ("libiomp", _OPENMP), ("libomp", _OPENMP), ("mkl_rt", _MKL))


def become(order: Mapping[str, Any], descriptors: Sequence[int], *, zygote: int) -> NoReturn:
    """`descriptors` are FORK's: /dev/null, output, channel, report, then the plan's. `zygote` is the parent's pidfd. Never returns."""
    null, output, channel, report, *planned = descriptors
    _place((null, output, output, channel, report, zygote, *planned))
    os.umask(0o022)
    keeper = Channel(_channel(), queue_bytes=0, body_bytes=ASSIGNMENT_BYTES, descriptors=DESCRIPTORS)
    given = range(FIRST_FD, FIRST_FD + len(planned))
    messages: list[Message] = []
    try:
        if order["spare"]:
            order, messages = _wait_for_a_model(order, given, keeper)
        elif order["apart"]:
            enter.enter(plan_json.load(order["plan"]), given, parent=ZYGOTE_FD)
        else:
            os.setsid()
            syscalls.die_with_parent()
            limits.apply(plan.Limits(**order["limits"]))
        os.chdir(order["cwd"])
    except (EnterFailed, BadPlan, OSError) as error:
        os.write(REPORT_FD, str(error).encode(errors="replace")[:REPORT_LONGEST])
        os._exit(FAILED_EXIT)
    settle(order["env"], order["name"])
    if not order.get("seeded"):
        reseed()
    os.close(ZYGOTE_FD)
    os.close(REPORT_FD)
    PLAIN_SIGNAL.pthread_sigmask(signal.SIG_SETMASK, ())
    begin(keeper, messages)


def _wait_for_a_model(order: Mapping[str, Any], descriptors: Sequence[int], keeper: Channel) -> tuple[dict[str, Any], list[Message]]:
    """TAKE's fields, and the messages that came behind it. Nothing of the model's runs before its walls stand."""
    first = plan_json.load(order["plan"])
    enter.join(first, descriptors)
    halfway = enter.begin(first, descriptors, parent=ZYGOTE_FD)
    reseed()
    with contextlib.suppress(OSError):
        syscalls.set_name("fornada-spare")
    poller = select.poll()
    poller.register(keeper.fileno(), select.POLLIN)
    messages: list[Message] = []
    while not messages:
        poller.poll()
        try:
            messages.extend(keeper.receive())
        except (ChannelClosed, ProtocolError):
            os._exit(LOST_EXIT)
    taken, *others = messages
    if taken.kind != Kind.TAKE:
        os._exit(LOST_EXIT)
    # A keeper older than this code sends ASSIGN by itself.
    assign = taken.head.pop("assign", None)
    counted = len(taken.descriptors) - int(taken.head.pop("near", 0))
    planned, near = taken.descriptors[:counted], taken.descriptors[counted:]
    enter.complete(halfway, plan_json.load(taken.head["plan"]), planned, parent=ZYGOTE_FD)
    return {**taken.head, "seeded": True}, [Message(Kind.ASSIGN, assign, near), *others] if assign is not None else others


def _channel() -> socket.socket:
    os.set_inheritable(CHANNEL_FD, False)
    return socket.socket(fileno=CHANNEL_FD)


def _place(descriptors: Sequence[int]) -> None:
    """Descriptor i becomes `descriptors[i]`, everything above is closed: what the zygote has is nothing for a child."""
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, len(descriptors)) for descriptor in descriptors]
    for number, copy in enumerate(copies):
        os.dup2(copy, number, inheritable=number < CHANNEL_FD)
    syscalls.close_from(len(descriptors))


# ---- what a new process would have of its own -----------------------------------------------------------------------------------


def settle(env: Mapping[str, str], name: str) -> None:
    """What an exec would have made new, and a fork has copied: environment, name, counts of threads."""
    # One by one, by the plainest way: what a mapping offers beyond that is a dozen functions of Python's, a child's own pages each.
    for variable in list(os.environ):
        del os.environ[variable]
    for variable, value in env.items():
        os.environ[variable] = value
    set_threads(int(env.get("OMP_NUM_THREADS", "1")))
    with contextlib.suppress(OSError):
        syscalls.set_name(name[-15:])


def reseed() -> None:
    """Chance must not be a sibling's. Python's own `random` sees to that itself, at the fork."""
    modules = sys.modules
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
    if "torch" in modules:
        modules["torch"].seed()
    if "tempfile" in modules:
        vars(modules["tempfile"])["_name_sequence"] = None  # it looks at the pid, which is 1 in all of them
    if "ssl" in modules:
        modules["ssl"].RAND_add(os.urandom(32), 32.0)  # so does OpenSSL


def set_threads(count: int) -> None:
    """For libraries that read their variable when they were loaded, which was with 1."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)
    if count == 1:
        return
    for path in _mapped():
        for part, functions in _LIBRARIES:
            if part in os.path.basename(path):
                _call_first(path, functions, count)


def _call_first(path: str, functions: Sequence[str], count: int) -> None:
    with contextlib.suppress(OSError):
        library = ctypes.CDLL(path)
        for name in functions:
            function = getattr(library, name, None)
            if function is not None:
                function(ctypes.c_int(count))
                return


def _mapped() -> list[str]:
    """Files of the shared libraries in this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in file if ".so" in line and "/" in line}
    return sorted(paths)
