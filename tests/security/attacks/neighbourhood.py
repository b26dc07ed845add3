"""What an attack on what all share does to a model next door: its latencies in turns, alone, beside a model that only works, and
beside the attack.

What counts is the attack beside the one that works, which it may at any time: whether there is a processor left for a third program is the
machine's business and not the attacker's. On two processors of which others take one, any program that spins lets the p99 of a pair of processes that
talk to each other grow two- to threefold, without a node anywhere.

Arguments: the folder to work in, the isolation level, the uid of the node (-1: the one who asks), and which attack. Prints JSON.
"""

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from tests.bounds import bound
from tests.harness.bundles import archive
from tests.harness.client import Response
from tests.harness.node import Node, NodeFailed, run_path
from tests.security.attacks.bundle import bundle, model_name
from tests.security.attacks.campaign import Campaign
from tests.security.attacks.judge import named
from tests.security.attacks.runs import UNAVAILABLE

NEIGHBOUR, HOG, BUSY = "@attack/neighbour", "@attack/hog", "@attack/busy"
ATTACKS = {
    "memory": ("a30_memory_bomb", "mapping"),
    "processes": ("a29_fork_bomb", ""),
    "disk": ("a31_fill_the_disk", "many files"),
    "output": ("a41_flood_the_log", "lines"),
    "short lines": ("a41_flood_the_log", "short lines"),
    "one line": ("a41_flood_the_log", "one line"),
}
SPIN = "spin"
"""No attack of the list: processes that spin. Without a share of CPU time for each model the neighbour must feel them."""
SAMPLES, TURN_S = 200, 6.0
"""A turn ends after either; where a neighbour suffers much, the time comes first."""
ROUNDS_LEAST, ROUNDS_MOST = 3, 7
RATIO_MOST = 1.5
PAUSE_S = 0.1
WORK = "def handle_request(request, context):\n    return sum(range(600_000))\n"
"""Some ten milliseconds: one slice of the scheduler, which whoever comes back from the kernel late costs, is 2 to 3, and no harm."""
WORKING = """
import time

def handle_request(request, context):
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        sum(range(10_000))
    return "worked"
"""
"""One thread, all the time, and no more."""
SPINNING = """
import os, signal, time

def handle_request(request, context):
    children = []
    for _ in range(4 * (os.cpu_count() or 1)):
        pid = os.fork()
        if pid == 0:
            os.setsid()  # the scheduler shares by session first
            signal.alarm(20)
            while True:
                pass
        children.append(pid)
    time.sleep(3)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return "spun"
"""


@dataclass
class Measured:
    """What came of it."""

    ratios: list[float] = field(default_factory=list)
    """p99 beside the attack over p99 beside the one that works, of each round."""
    medians: list[float] = field(default_factory=list)
    """The same of the p50."""
    p99_ms: list[tuple[float, float, float]] = field(default_factory=list)
    """Alone, beside the one that works, beside the attack."""
    answers: list[tuple[int, int, str]] = field(default_factory=list)
    """(HTTP status, error code or 0, words) of each call of the attacker."""
    refused: int = 0
    """Calls of the neighbour that weren't answered well."""
    same_process: bool = True


def p99(samples: list[float]) -> float:
    return sorted(samples)[int(len(samples) * 0.99)]


def measure(node: Node, attack: "Caller", work: "Caller") -> Measured:
    """Rounds of three turns, until the median of their ratios is within RATIO_MOST, or will not be: noise of the machine doesn't hit most of
    the rounds, an attack does."""
    measured = Measured()
    pids = node.pids(NEIGHBOUR)
    _turn(node, measured)
    while len(measured.ratios) < ROUNDS_LEAST or (len(measured.ratios) < ROUNDS_MOST and median(measured.ratios) > RATIO_MOST):
        alone, beside_work, attacked = _turn(node, measured), _turn(node, measured, work), _turn(node, measured, attack)
        measured.p99_ms.append((_ms(p99(alone)), _ms(p99(beside_work)), _ms(p99(attacked))))
        measured.ratios.append(round(p99(attacked) / p99(beside_work), 2))
        measured.medians.append(round(median(attacked) / median(beside_work), 2))
    measured.same_process = node.pids(NEIGHBOUR) == pids
    measured.answers = attack.answers
    return measured


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _turn(node: Node, measured: Measured, beside: "Caller | None" = None) -> list[float]:
    if beside is not None:
        beside.begin()
    try:
        return _asked(node, measured)
    finally:
        if beside is not None:
            beside.end()


def _asked(node: Node, measured: Measured) -> list[float]:
    took: list[float] = []
    end = time.monotonic() + TURN_S
    with node.connect(timeout_s=20) as connection:
        while len(took) < SAMPLES and time.monotonic() < end:
            began = time.monotonic()
            connection.send_request("POST", run_path(NEIGHBOUR), b"{}")
            answer = connection.read_response()
            took.append(time.monotonic() - began)
            measured.refused += answer.status != 200
    return took


class Caller:
    """Calls a model again and again, between `begin` and `end`."""

    def __init__(self, node: Node, name: str, payload: "dict[str, object]") -> None:
        self._node = node
        self._name = name
        self._payload = payload
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.answers: list[tuple[int, int, str]] = []

    def begin(self) -> None:
        self._over.clear()
        self._node.act(self._name, "reset")
        self._thread = threading.Thread(target=self._attack)
        self._thread.start()
        time.sleep(0.2)  # so that it is at work, not about to

    def end(self) -> None:
        assert self._thread
        self._over.set()
        self._thread.join(bound(40))

    def _attack(self) -> None:
        while not self._over.is_set():
            answer = self._node.run(self._name, self._payload, timeout_s=30)
            self.answers.append((answer.status, *_words(answer)))
            if answer.status != 200:
                self._over.wait(PAUSE_S)  # a caller who is refused asks again, as often as that is of use


def _words(answer: Response) -> tuple[int, str]:
    if answer.status == 200:
        result = answer.json()["result"]
        return 0, str(result["how"] if isinstance(result, dict) else result)[:200]
    return answer.code, answer.message[:200]


def main() -> None:
    folder, level, uid, which = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    campaign = Campaign(folder, level, uid)
    node = campaign.node
    try:
        node.start()
    except NodeFailed as error:
        node.destroy()
        if level == "none" or "isolation" not in str(error):
            raise
        print(str(error).replace("\n", " | "), file=sys.stderr)
        os._exit(UNAVAILABLE)
    try:
        node.deploy(NEIGHBOUR, archive({"model.toml": "", "model.py": WORK}))
        node.deploy(BUSY, archive({"model.toml": "", "model.py": WORKING}))
        if which == SPIN:
            node.deploy(HOG, archive({"model.toml": "", "model.py": SPINNING}))
            attacker = Caller(node, HOG, {})
        else:
            name, part = ATTACKS[which]
            weights = campaign.sources / name
            weights.write_text(name)
            node.deploy(model_name(named(name)), archive(bundle(named(name), campaign.scene.told, weights)))
            attacker = Caller(node, model_name(named(name)), {**campaign.scene.told, "part": part})
        node.ask(NEIGHBOUR, {})
        node.ask(BUSY, {})
        print(json.dumps(asdict(measure(node, attacker, Caller(node, BUSY, {})))), flush=True)
    finally:
        campaign.close()


if __name__ == "__main__":
    main()
