"""Which instances share a process: models without code, whose library's makers wrote all that runs there.

What is shared is also the fate: a crash, a leak or a long call is everybody's of that process. So only one account's models meet, an
author may decline, and whoever has crashed a shared process twice has one of its own from then on.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fornada.core.policy.memory import CPU
from fornada.core.resources import format_size
from fornada.core.specs import ModelSpec

ENGINES = frozenset({"onnx", "litert"})
CRASHES_MOST = 2
LIBRARY_BYTES = 128 * 1024**2
"""Interpreter, numpy and library, as the bound of a process counts them, with room to breathe."""
WEIGHTS_FACTOR = 3
"""The file as it is read, the weights as they are kept, and as the library packs them for the processor."""
MODEL_BYTES = 1024**2
"""Of a model whose weights are next to nothing."""


class Bound(NamedTuple):
    """Of one shared process."""

    members: int
    """0: nothing is shared."""
    memory_bytes: int


class HostRoom(NamedTuple):
    """A process that takes more members."""

    name: str
    members: int
    held_bytes: int
    """What it holds, and what its members that are still loading are expected to take."""


def expected_bytes(*, weights_bytes: int, peak_bytes: int) -> int:
    """What an instance takes in a shared process: what it took before, else a guess by the size of its files."""
    return peak_bytes or weights_bytes * WEIGHTS_FACTOR + MODEL_BYTES


def alone_because(spec: ModelSpec, *, device: str, host_crashes: int, bound: Bound) -> str:
    """Why an instance on `device` has a process of its own; empty: it may share one. `host_crashes` are those under its own work."""
    reasons = [
        (bound.members == 0, "the node shares no processes ([node] packed_members = 0)"),
        (spec.engine not in ENGINES, f"engine {spec.engine} doesn't share"),
        (bool(spec.python.entry), "it has code of its own"),
        (bool(spec.env), "it has variables of its own ([env])"),
        (bool(spec.resources.network), "it reaches hosts ([resources] network)"),
        (device != CPU, f"it runs on {device}"),
        (spec.resources.threads != 1, "it computes with several threads"),
        (spec.serving.concurrency != 1, "it takes several requests at a time"),
        (spec.serving.max_instances > 1, "it may have several instances, each a process"),
        (not spec.serving.packed, "its author declined ([serving] packed = false)"),
        (host_crashes >= CRASHES_MOST, f"a shared process ended {host_crashes} times while it worked"),
    ]
    return next((why for holds, why in reasons if holds), "")


def too_large_because(expected: int, *, bound: Bound) -> str:
    """Why it would fit no shared process at all; empty: it does."""
    if LIBRARY_BYTES + expected <= bound.memory_bytes:
        return ""
    return f"it may take {format_size(expected)}, more than a shared process has to give (of {format_size(bound.memory_bytes)})"


def choose_host(hosts: Sequence[HostRoom], *, expected: int, bound: Bound) -> str:
    """The fullest one that has room, so that others run empty and end; empty where none has."""
    fitting = [host for host in hosts if host.members < bound.members and host.held_bytes + expected <= bound.memory_bytes]
    return max(fitting, key=lambda host: (host.members, host.name)).name if fitting else ""
