"""What main tells the keeper at its start: a JSON object in an inherited descriptor."""

import dataclasses
import json
import os


@dataclasses.dataclass(frozen=True, slots=True)
class WallsConfig:
    """What keeps children apart. Main has seen that the machine gives it."""

    level: str
    """levels.Level"""
    node: str
    """What the node is called where it stands beside others, as in names of cgroups."""
    run_dir: str
    """A folder of the node's own."""
    first_uid: int = 0
    """Of `uids` that instances may have; 0: they have ours."""
    uids: int = 0
    first_block: int = 0
    """Of `blocks` blocks of uids (uid_blocks.BLOCK each), one for each zygote; 0: a zygote and all that it forks have our uid."""
    blocks: int = 0
    own_users: bool = False
    """Each may have a user namespace inside its others."""
    cgroup_namespace: bool = False
    landlock: bool = False
    scoped_signals: bool = False
    """Landlock keeps signals inside."""


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
    walls: WallsConfig


def read(descriptor: int) -> Config:
    """Reads and closes the descriptor."""
    with os.fdopen(descriptor, "rb") as file:
        given = json.load(file)
    return Config(**{**given, "walls": WallsConfig(**given["walls"])})


def dump(config: Config) -> bytes:
    return json.dumps(dataclasses.asdict(config)).encode()
