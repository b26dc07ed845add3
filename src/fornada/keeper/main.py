"""The keeper's process. Main starts it as `python -I -S -c ... DESCRIPTOR` with its Config in that descriptor."""

import gc
import os
import resource
import signal
import socket
import sys

from fornada.keeper import config
from fornada.keeper.keeper import Keeper
from fornada.keeper.loop import Loop
from fornada.keeper.peer import Peer
from fornada.keeper.say import say, say_fault
from fornada.keeper.starting import CONTROL_SETTINGS, CONTROL_SOCKET
from fornada.keeper.walls import NoWalls, Walls
from fornada_sdk.sandbox import syscalls
from fornada_sdk.wire.channel import Channel, Message
from fornada_sdk.wire.messages import Kind

MAIN_QUEUE = 65536
COLLECT = (700, 2, 1)
"""Python's thresholds. A process that has come and gone leaves some eighty objects in rings, 23 KiB; by its own thresholds Python would look for
old rings after 70000 objects, a thousand processes later. There are few objects here: a look takes milliseconds."""
CONTROL_ENVIRONMENT = {"FORNADA_KEEPER_FD": str(CONTROL_SOCKET), "FORNADA_SETTINGS_FD": str(CONTROL_SETTINGS)}


def main() -> None:
    """Runs until everything below has ended."""
    settings = config.read(int(sys.argv[-1]))
    for descriptor in (*settings.listeners, settings.settings, settings.lock, settings.main_socket):
        os.set_inheritable(descriptor, False)
    syscalls.set_name("fornada-keeper")
    if settings.nested:
        syscalls.die_with_parent()  # and the kernel ends the namespace with us
    else:
        # A SIGKILL would leave us no time to end the processes that models made; the end of main's socket does.
        syscalls.become_subreaper()
        syscalls.die_with_parent(signal.SIGHUP)
    _open_many_files()
    for name, value in CONTROL_ENVIRONMENT.items():
        os.putenv(name, value)
    loop = Loop(failed=say_fault)
    try:
        walls = Walls(settings.walls, loop)
    except NoWalls as error:
        say(str(error))
        sys.exit(1)
    keeper = Keeper(loop, settings, walls, lambda keeper: _talk_to_main(loop, settings, keeper))
    gc.freeze()  # a collection in a forked child would copy every page
    gc.set_threshold(*COLLECT)
    code = keeper.run()
    walls.close()
    sys.exit(code)


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
