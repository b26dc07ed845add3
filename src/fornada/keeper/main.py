"""The keeper's process. Main starts it as `python -I -S -c ... DESCRIPTOR` with its Config in that descriptor."""

import gc
import os
import resource
import signal
import socket
import sys

from fornada.keeper import config, linux
from fornada.keeper.keeper import Keeper
from fornada.keeper.loop import Loop
from fornada.keeper.peer import Peer
from fornada.keeper.starting import CONTROL_SETTINGS, CONTROL_SOCKET
from fornada_sdk.wire.channel import Channel, Message
from fornada_sdk.wire.messages import Kind

MAIN_QUEUE = 65536
CONTROL_ENVIRONMENT = {"FORNADA_KEEPER_FD": str(CONTROL_SOCKET), "FORNADA_SETTINGS_FD": str(CONTROL_SETTINGS)}


def main() -> None:
    """Runs until everything below has ended."""
    settings = config.read(int(sys.argv[-1]))
    for descriptor in (*settings.listeners, settings.settings, settings.lock, settings.main_socket):
        os.set_inheritable(descriptor, False)
    linux.set_name("fornada-keeper")
    if settings.nested:
        linux.die_with_parent()  # and the kernel ends the namespace with us
    else:
        # A SIGKILL would leave us no time to end the processes that models made; the end of main's socket does.
        linux.become_subreaper()
        linux.die_with_parent(signal.SIGHUP)
    _open_many_files()
    for name, value in CONTROL_ENVIRONMENT.items():
        os.putenv(name, value)
    loop = Loop()
    keeper = Keeper(loop, settings, lambda keeper: _talk_to_main(loop, settings, keeper))
    gc.freeze()  # a collection in a forked child would copy every page
    sys.exit(keeper.run())


def _talk_to_main(loop: Loop, settings: config.Config, keeper: Keeper) -> Peer:
    def heard(message: Message) -> None:
        if message.kind == Kind.DRAIN:
            if message.head.get("now"):
                keeper.kill()
            else:
                keeper.drain(str(message.head.get("reason", "")))

    main_socket = Channel(socket.socket(fileno=settings.main_socket), queue_bytes=MAIN_QUEUE, body_bytes=MAIN_QUEUE)
    return Peer(loop, main_socket, heard=heard, lost=lambda broke_rules, why: keeper.kill())


def _open_many_files() -> None:
    """Three descriptors for each instance, and one for each of its control planes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
