"""`fornada serve --upgrade`: asks the keeper of a running node to put this release's control plane in the place of the one that serves."""

import contextlib
import fcntl
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import msgspec

import fornada
import fornada_sdk.wire
from fornada.app.serve import memory_file
from fornada.core.settings import Settings
from fornada.keeper.say import say
from fornada.keeper.upgrade import PRESENT_S, QUIET_S, RELEASE_SPARE_S, SERVE_S, SOCKET_NAME
from fornada_sdk.wire.channel import Channel, ChannelClosed, Message
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import WIRE_VERSION, Kind

ANSWER_S = PRESENT_S + QUIET_S + RELEASE_SPARE_S + SERVE_S + 5.0
"""The keeper has a bound of its own for each step."""
MESSAGE_BYTES = 65536
CONTROL_CODE = (
    "import sys; sys.path[:0] = [root for root in sys.argv[1:] if root not in sys.path]; "
    "from fornada.app.control import main; sys.exit(main())"
)


class UpgradeFailed(Exception):
    """The node goes on as it was. The message is one line."""


def upgrade(settings: Settings, out: TextIO = sys.stdout) -> int:
    """Replaces the control plane of the node on `settings.data_dir`; the exit code. Prints a line for each step."""
    folder = Path(settings.data_dir).absolute()
    given = msgspec.json.encode(msgspec.structs.replace(settings, data_dir=str(folder)))
    began = time.monotonic()
    try:
        order(
            folder,
            argv=our_control_plane(),
            release=fornada.__version__,
            settings=given,
            told=lambda text: print(f"  {text}", file=out, flush=True),
        )
    except UpgradeFailed as failure:
        say(f"not upgraded: {failure}")
        return 1
    took_s = time.monotonic() - began
    print(f"The node runs the control plane of {fornada.__version__}, after {took_s:.1f} s; no model was restarted", file=out, flush=True)
    return 0


def our_control_plane() -> list[str]:
    """What runs the control plane with the very code that this process has."""
    roots = {str(Path(module.__file__ or "").parents[up]) for module, up in ((fornada, 1), (fornada_sdk.wire, 2))}
    return [sys.executable, "-I", "-c", CONTROL_CODE, *sorted(roots)]


def order(folder: Path, *, argv: Sequence[str], release: str, settings: bytes, told: Callable[[str], None]) -> None:
    """Waits until the new control plane serves; `told` hears of each step. Raises UpgradeFailed."""
    channel = Channel(_connected(folder), queue_bytes=MESSAGE_BYTES, body_bytes=MESSAGE_BYTES)
    with contextlib.closing(channel), memory_file("fornada-settings", settings) as settings_file:
        head = {"release": release, "wire": WIRE_VERSION, "argv": list(argv)}
        try:
            channel.send(Kind.UPGRADE, head, [os.dup(settings_file)])
            for message in _messages(channel):
                if message.kind == Kind.STEP:
                    told(str(message.head.get("text")))
                elif message.kind == Kind.DONE:
                    if message.head.get("failed"):
                        raise UpgradeFailed(str(message.head["failed"]))
                    return
        except (ChannelClosed, ProtocolError) as error:
            raise UpgradeFailed(f"the keeper has ended the conversation ({error}); look at the node's own lines") from None
    raise UpgradeFailed(f"the keeper didn't tell the outcome within {ANSWER_S:g} s; 'fornada nodes' shows what serves")


def _messages(channel: Channel) -> Iterator[Message]:
    """What comes, until ANSWER_S are over. Raises ChannelClosed, ProtocolError."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    until = time.monotonic() + ANSWER_S
    while (left_s := until - time.monotonic()) > 0:
        if poll.poll(left_s * 1000):
            yield from channel.receive()


def _connected(folder: Path) -> socket.socket:
    """Through the folder's descriptor, as the keeper listens: a socket's path has 107 bytes at most."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        run = os.open(folder / "run", os.O_DIRECTORY | os.O_PATH | os.O_CLOEXEC)
        try:
            sock.connect(f"/proc/self/fd/{run}/{SOCKET_NAME}")
        finally:
            os.close(run)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        sock.close()
        raise UpgradeFailed(_nobody(folder)) from None
    except OSError as error:
        sock.close()
        raise UpgradeFailed(f"the node on {folder} can't be reached by uid {os.geteuid()}: {error.strerror}") from None
    return sock


def _nobody(folder: Path) -> str:
    try:
        lock = os.open(folder / "run" / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return f"no node runs on {folder}; start one with 'fornada serve'"
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return f"the node on {folder} can't be upgraded while it runs (its release may be too old for that); stop it and start this one"
    finally:
        os.close(lock)
    return f"no node runs on {folder}; start one with 'fornada serve'"
