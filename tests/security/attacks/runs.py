"""Campaigns at a level of isolation, each run once: what came of every attempt."""

import functools
import json
import os

from tests.harness.throwaway import STRANGER, Bounds, Finished, NotPossible, run_apart
from tests.security.attacks.judge import Outcome

LEVELS = ("full", "namespaces", "landlock")
USERS = ("root", "user")
CAMPAIGN = Bounds(memory_bytes=4 * 1024**3, disk_bytes=1024**3, processes=1500, seconds=280)
UNAVAILABLE = 78
"""Exit status of what ran, where this machine doesn't offer the level; the reason is the last line of stderr."""


class Unavailable(Exception):
    """The level can't be tried here; the message says why, in one line."""


def run_at(level: str, user: str, module: str, *arguments: str, bounds: Bounds = CAMPAIGN) -> Finished:
    """`module` with the level and the node's uid as its first arguments, in a namespace. Raises Unavailable.

    Without isolation the namespace has users of its own, since the attacks do get through. With it, root is root and a user is a user.
    """
    root = os.geteuid() == 0
    if user == "root" and not root:
        raise Unavailable("only root can try what root may do")
    uid = STRANGER if root and user == "user" else -1
    try:
        own_users = level == "none" or not root
        groups_of = uid if level == "full" and user == "user" and root else -1
        done = run_apart(module, [level, str(uid), *arguments], bounds=bounds, own_users=own_users, groups_of=groups_of)
    except NotPossible as error:
        raise Unavailable(str(error)) from None
    if done.status == UNAVAILABLE:
        raise Unavailable(f"--isolation {level}: {done.stderr.strip().splitlines()[-1][:500]}")
    return done


@functools.cache
def outcomes(level: str, user: str) -> "dict[tuple[str, str], Outcome]":
    """(attempt, part) -> what came of it. Raises Unavailable, AssertionError."""
    done = run_at(level, user, "tests.security.attacks.campaign")
    found = [Outcome(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.status == 0, f"the campaign ended with {done.status} after {len(found)} outcomes\n{done.stderr}"
    return {(outcome.attempt, outcome.part): outcome for outcome in found}
