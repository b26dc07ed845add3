"""The control plane's process: edge, catalogue and node in one event loop, started and restarted by the keeper.

    python -I -m fornada.app.control

Descriptor FORNADA_KEEPER_FD is the socket to the keeper, FORNADA_SETTINGS_FD holds the Settings as JSON. Exit codes: 0 after
a drain, UNUSABLE where starting again can't help (the keeper then ends the node), anything else is a crash: the keeper
starts a successor, which finds its runners.
"""

import gc
import os
import signal
import sys

import msgspec
import uvloop

from fornada.app import config
from fornada.core.errors import DiskFull
from fornada.core.ports import KeeperLost
from fornada.core.settings import Settings
from fornada.keeper.say import say
from fornada.keeper.supervise import UNUSABLE
from fornada.store.unusable import StoreUnusable


def main() -> int:
    """Runs until drained. Prints at most one line of why it can't."""
    # Nothing of eight hundred modules is garbage: looking for it takes a fifth of the time between a death and its successor, and
    # again at every full collection of a node that serves.
    gc.disable()
    from fornada.app.wiring import Node

    gc.freeze()
    gc.enable()
    environ = config.environment()
    settings = _settings(int(environ["FORNADA_SETTINGS_FD"]))
    # SIGINT reaches the whole foreground group of a terminal; the keeper alone says when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def run() -> None:
        node = await Node.assemble(settings, int(environ["FORNADA_KEEPER_FD"]), environ)
        await node.run()

    try:
        uvloop.run(run())
    except (StoreUnusable, DiskFull) as error:
        say(str(error))
        return UNUSABLE
    except KeeperLost as error:
        say(f"the control plane can't go on: {error}")
        return 1
    return 0


def _settings(descriptor: int) -> Settings:
    """Read by position: a successor inherits the same open file."""
    chunks = []
    offset = 0
    while chunk := os.pread(descriptor, 65536, offset):
        chunks.append(chunk)
        offset += len(chunk)
    return msgspec.json.decode(b"".join(chunks), type=Settings)


if __name__ == "__main__":
    sys.exit(main())
