"""What main tells the keeper at its start: a JSON object in an inherited descriptor."""

import dataclasses
import json
import os


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """Descriptors are numbers in the keeper's own table."""

    main_pid: int
    """As the operator sees it."""
    main_socket: int
    """SEQPACKET: UP goes to main, DRAIN comes from it; its end is main's death."""
    listeners: list[int]
    settings: int
    """A file with the node's settings, which the keeper doesn't read and hands to every control plane."""
    lock: int
    """The locked file of the data directory: it stays locked while the keeper or a control plane lives."""
    control_argv: list[str]
    nested: bool
    """The keeper is process 1 of a pid namespace."""
    drain_s: float
    kill_s: float
    grace_s: float


def read(descriptor: int) -> Config:
    """Reads and closes the descriptor."""
    with os.fdopen(descriptor, "rb") as file:
        return Config(**json.load(file))


def dump(config: Config) -> bytes:
    return json.dumps(dataclasses.asdict(config)).encode()
