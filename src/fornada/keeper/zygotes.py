"""Zygotes, and the instances that they fork: starting, asking, watching, ending. What a zygote says is a stranger's word.

A zygote runs the packages of an environment, and a fork of it runs them before its walls stand. So both are held for one: what a
zygote may do, each of its instances may do in the worst case, and no instance of another account or environment ever comes from it.
Whatever it doesn't do in time, or does otherwise than asked, costs it its office: what it was asked for is executed instead.
"""

import array
import contextlib
import dataclasses
import itertools
import os
import select
import signal
import socket
from collections.abc import Sequence
from typing import Any, Protocol

from fornada.keeper import children
from fornada.keeper.children import Exit
from fornada.keeper.loop import Loop
from fornada.keeper.orders import Command, Spawn, Zygote
from fornada.keeper.peer import Peer
from fornada.keeper.records import Life
from fornada.keeper.say import say
from fornada.keeper.zygote_records import Fork, ForkedChild, ZygoteChild, ZygoteState

IMPORT_S = 120.0
"""From its start until WARM."""
FORK_S = 10.0
"""From FORK or TAKE until the walls stand and the pidfd is there: some thousand times what it takes."""
GONE_S = 2.0
"""What a zygote has for reaping a child that has ended."""
REFILL_S = 0.03
"""After a spare was taken, so that its successor doesn't take its time away."""
"""
