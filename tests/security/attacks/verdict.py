"""What an attempt is told and what it says: the attacker knows where everything is, and still must not get there."""

import errno
from collections.abc import Callable
from typing import Any, TypedDict

MARK = "fornada-attack-was-here"
"""Name or content of what an attempt writes where it may not."""
SECRET = "planted:"
"""What every planted secret begins with; the rest is chance, which the attacker isn't told."""


class Told(TypedDict):
    """What the attacker knows. Paths are those of the machine, pids those of its /proc."""

    other_weights: str
    token_file: str
    environment: str
    """Folder that models import from; empty: the environment of the attacker itself."""
    host_folder: str
    """Belongs to the user who runs the node."""
    protected: list[str]
    """Folders in which no model may make a file, not even one that only it sees."""
    folders: list[str]
    """Folders of the user who runs the node."""
    neighbour_pid: int
    neighbour_address: int
    """Of a secret in its memory."""
    neighbour_length: int
    neighbour_descriptor: int
    """Number of a descriptor of its, behind which a secret is."""
    tcp_ports: list[int]
    """On 127.0.0.1; whoever connects is told a secret."""
    udp_port: int
    abstract_socket: str
    socket_path: str
    shm_key: int
    shm_length: int
    memory_bytes: int
    pids: int
    scratch_bytes: int
    """What model.toml declares; a bomb goes well beyond it, and then stops."""
    part: str
    """Which of the attempt's PARTS, where it has several."""


class Verdict(TypedDict):
    """What came of it, as far as the attacker can tell."""

    worked: bool
    how: str
    """In a few words: what was reached, or the errno of the wall."""
    loot: str
    """The secret that it got."""
    skip: str
    """Why there was nothing to attack."""
    more: dict[str, Any]
    """Numbers for the harness; verdicts of several attempts."""


def worked(how: str, loot: str = "", **more: Any) -> Verdict:
    return {"worked": True, "how": how, "loot": loot, "skip": "", "more": more}


def refused(why: "OSError | str", **more: Any) -> Verdict:
    how = why if isinstance(why, str) else f"{errno.errorcode.get(why.errno or 0, str(why))}"
    return {"worked": False, "how": how, "loot": "", "skip": "", "more": more}


def nothing_there(why: str) -> Verdict:
    """There was nothing to attack: this proves nothing."""
    return {"worked": False, "how": why, "loot": "", "skip": why, "more": {}}


def first_that_works(tries: "dict[str, Callable[[], object]]") -> Verdict:
    """Tries them one after the other; what a try returns, if it is text, is its loot. The verdict names every errno."""
    walls = []
    for name, call in tries.items():
        try:
            got = call()
        except OSError as error:
            walls.append(f"{name} {errno.errorcode.get(error.errno or 0, str(error))}")
            continue
        return worked(name, got if isinstance(got, str) else "")
    return refused(", ".join(walls) or "nothing to try")


def secret_in(data: bytes) -> str:
    """The secret in `data`; what else there is, as far as 60 characters, where there is none."""
    text = data.decode("latin-1")
    found = text.find(SECRET)
    return text[found : found + len(SECRET) + 16] if found >= 0 else text[:60]
