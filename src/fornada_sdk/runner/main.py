"""A runner's process, from descriptor 3 to its exit.

ASSIGN -> loading -> warming -> READY -> serving -> STOP or SIGTERM -> exit 0
              any failure -> FAILED -> exit 1        the keeper gone -> exit at once
JOIN   -> a process that instances share (host.py) -> the last has gone -> exit 0
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import select
import signal
import socket
import sys
import time
from types import FrameType
from typing import Any, Callable, NoReturn

from fornada_sdk.runner.assignment import Assignment, read_assignment
from fornada_sdk.runner.capture import Output, capture
from fornada_sdk.runner.life import Life
from fornada_sdk.runner.session import DEAD_KEEPER_EXIT, Session
from fornada_sdk.wire.channel import Channel, ChannelClosed, Message
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import Kind

Handler = Callable[[int, Any], None]

PLAIN_SIGNAL: Any = vars(signal).get("_signal", signal)
"""The same functions without the enums around them, whose code a child of a zygote would have to itself."""
KEEPER_FD = 3
ASSIGN_S = 30.0
ASSIGNMENT_BYTES = 16 * 1024 * 1024
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
"""What numeric libraries read once, at import: without it each would start a thread for every core of the machine."""


def main() -> NoReturn:
    """Runs until the end of the instance."""
    sock = socket.socket(fileno=KEEPER_FD)
    os.set_inheritable(KEEPER_FD, False)
    begin(Channel(sock, queue_bytes=0, body_bytes=ASSIGNMENT_BYTES, descriptors=8))


def begin(keeper: Channel, messages: list[Message] | None = None) -> NoReturn:
    """The same in a process that has its channel already, and perhaps `messages` that came over it."""
    output = capture()
    faulthandler.enable(file=2)
    messages = messages or receive_first(keeper)
    if messages[0].kind == Kind.JOIN:
        from fornada_sdk.runner.host import Host  # most runners are none

        Host(keeper).serve(messages)
        end(0)
    assignment = assigned(messages[0])
    if assignment.network:
        from fornada_sdk.runner.outbound import open_way_out  # most models reach nothing

        open_way_out(messages[0].descriptors, assignment.network)
    run(keeper, assignment, messages[1:], output)


def run(keeper: Channel, assignment: Assignment, messages: list[Message], output: Output) -> NoReturn:
    """The instance, in a process that is ready for it; `messages` came after ASSIGN."""
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, str(assignment.threads))
    life = Life(keeper, assignment, output)
    on_term = _hear_signals(life.session)
    os.register_at_fork(after_in_child=lambda: _deafen(on_term))
    os.register_at_fork(after_in_child=life.session.close_in_child)
    os.register_at_fork(after_in_child=output.renew_in_child)
    end(life.live(messages))


def _hear_signals(session: Session) -> Handler:
    def on_term(number: int, frame: FrameType | None) -> None:
        session.terminate()

    PLAIN_SIGNAL.signal(signal.SIGINT, PLAIN_SIGNAL.SIG_IGN)
    PLAIN_SIGNAL.signal(signal.SIGTERM, on_term)
    # The handler waits until the main thread is back from C code; here the number of a signal is written at once.
    signal.set_wakeup_fd(session.signal_fd(), warn_on_full_buffer=False)
    return on_term


def _deafen(on_term: Handler) -> None:
    """In a process that model code forked: a SIGTERM for it must not stop this runner, whose pipe it would be written to."""
    signal.set_wakeup_fd(-1)
    if signal.getsignal(signal.SIGTERM) is on_term:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end(code: int) -> NoReturn:
    """What the model registered with `atexit`, then the exit: tearing modules and threads down takes long and can hang."""
    run_exit_functions = getattr(atexit, "_run_exitfuncs", None)
    try:
        if run_exit_functions is not None:
            run_exit_functions()
    finally:
        os._exit(code)


def receive_first(keeper: Channel) -> list[Message]:
    """ASSIGN or JOIN, and the messages that came with it. Ends the process where neither comes."""
    poller = select.poll()
    poller.register(keeper.fileno(), select.POLLIN)
    deadline = time.monotonic() + ASSIGN_S
    while time.monotonic() < deadline:
        poller.poll((deadline - time.monotonic()) * 1000)
        try:
            messages = list(keeper.receive())
        except (ChannelClosed, ProtocolError):
            os._exit(DEAD_KEEPER_EXIT)
        if messages:
            if messages[0].kind not in (Kind.ASSIGN, Kind.JOIN):
                break
            return messages
    os._exit(DEAD_KEEPER_EXIT)


def assigned(message: Message) -> Assignment:
    """ASSIGN's. Ends the process where it can't be read."""
    try:
        return read_assignment(message.head)
    except ValueError as error:
        sys.stderr.write(f"fornada: {error}\n")
        os._exit(DEAD_KEEPER_EXIT)
