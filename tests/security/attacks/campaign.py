"""All attempts as deployed models on one real node, in the namespace that a test made for it. Prints an outcome a line, as JSON.

Arguments: the folder to work in, the isolation level, the uid of the node (-1: the one who asks), and the names of the attempts.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.bounds import bound
from tests.harness.bundles import archive
from tests.harness.client import Response
from tests.harness.node import Node, NodeFailed
from tests.harness.processes import Process, descriptors, living, marked
from tests.security.attacks.bundle import bundle, model_name
from tests.security.attacks.judge import Attempt, Outcome, all_attempts, judge, named
from tests.security.attacks.poison import NOT_AT_IMPORT, make_poison, make_sdist
from tests.security.attacks.runs import UNAVAILABLE
from tests.security.attacks.scene import ENVIRON, Scene
from tests.security.attacks.verdict import MARK

BYSTANDER = "@attack/bystander"
KILL_S = 1.0
ANSWER_S = 5.0
"""Within it a bystander must answer while nothing attacks."""
LOGS_MOST = 48 * 1024 * 1024
DESCRIPTORS_MORE = 24
"""Connections and caches come and go; a flood of passed descriptors is ten times that."""
RUNNER_DIED = 3101


class Campaign:
    """A scene, a node in the middle of it, and one attack after the other."""

    def __init__(self, folder: Path, level: str, uid: int) -> None:
        self.scene = Scene(folder / "scene", uid=uid)
        self.index = folder / "index"
        self.index.mkdir()
        self._secrets = set(self.scene.secrets.values())
        self.node = Node(
            folder / "node",
            config=_config(self.index, folder / "node" / "data" / "cache" / "uv"),
            flags=["--isolation", level],
            environ={ENVIRON: self.scene.secrets["environ"], "HOME": str(folder / "node")},
            prefix=_as_user(uid, self.scene.leak),
        )
        data = self.node.data_dir
        self.scene.watched += [data / "environments", data / "artifacts", data / "bundles"]
        self.scene.artifacts.append(data / "artifacts")
        self.scene.told["environment"] = ""
        self.scene.told["folders"] += [str(data), str(data / "bundles")]
        self.sources = folder / "sources"
        self.sources.mkdir()
        if uid >= 0:
            os.chown(self.node.directory, uid, uid)

    def open(self) -> None:
        """Starts the node. Raises NodeFailed."""
        self.node.start()
        self.node.deploy_probe(BYSTANDER, settings={}, serving={"concurrency": 4}, resources={"memory": "64MiB"})
        assert self.node.ask(BYSTANDER, {"echo": 1})["echo"] == 1

    def close(self) -> None:
        """Ends the node, which must leave nothing, and the scene."""
        try:
            assert self.node.stop() == 0, self.node.said()
        finally:
            self.node.destroy()
            self.scene.close()

    # ---- one attack -----------------------------------------------------------------------------------------------------

    def run(self, attempt: Attempt) -> Iterator[Outcome]:
        """Its outcomes, one for each part."""
        if hasattr(attempt.module, "bundles"):
            yield self._timed(attempt, "", partial(self._deploys, attempt))
            return
        name = model_name(attempt)
        weights = self.sources / attempt.name
        weights.write_text(f"weights of {attempt.name}")
        if attempt.says("DEPENDS"):
            at_import = [one.name for one in all_attempts() if one.number <= 40 and one.number not in NOT_AT_IMPORT]
            make_poison(self.index, self.scene.told, at_import)
        self.node.deploy(name, archive(bundle(attempt, self.scene.told, weights)))
        for part in attempt.parts:
            yield self._timed(attempt, part, partial(self._strikes, attempt, name, part))
        self.node.remove(name)

    def _timed(self, attempt: Attempt, part: str, act: Callable[[], Outcome]) -> Outcome:
        began = time.monotonic()
        try:
            outcome = act()
        except (AssertionError, OSError, ValueError) as error:
            outcome = Outcome(attempt.name, part, False, "", broken=f"{type(error).__name__}: {str(error)[:2000]}")
        return replace(outcome, seconds=round(time.monotonic() - began, 2))

    def _strikes(self, attempt: Attempt, name: str, part: str) -> Outcome:
        self.node.act(name, "reset")  # a part that killed its runner must not make the next one wait
        if attempt.says("SHARES"):
            for _ in range(2):  # the first long body shows that it is worth sharing memory
                assert self.node.run(name, {"shared": "x" * 500_000}).status == 200
        before = self._held()
        answer = self.node.run(name, {**self.scene.told, "part": part}, timeout_s=60)
        processes = living(self.node.pids(name))
        harm = self._unrest()
        mark = f"{MARK}-{part}"
        if answer.status == 200:
            verdict = answer.json()["result"]
        elif attempt.says("MAY_DIE") and (answer.status, answer.code) == (502, RUNNER_DIED):
            verdict = {"worked": False, "how": f"the runner died: {_why(answer.message)}", "loot": "", "skip": "", "more": {}}
        else:
            return Outcome(attempt.name, part, False, "", broken=_told_by(answer))
        harm += self._end(name, processes)
        if attempt.says("OUTLIVES") and self.scene.survivor(part):
            harm.append(f"{mark} lives on")
        harm += self._more_than(before)
        for inner, said in verdict["more"].pop("verdicts", {}).items():
            if "broken" in said:
                return Outcome(attempt.name, part, False, "", broken=f"{inner}: {said['broken']}")
            result = judge(named(inner), said, harm=(), secrets=self._secrets)
            if result.through and not named(inner).says("ALLOWED"):
                harm.append(f"{inner} got through: {result.how}")
        harm += self.scene.harm(expected=verdict["worked"])
        return judge(attempt, verdict, harm=harm, secrets=self._secrets, part=part)

    def _deploys(self, attempt: Attempt) -> Outcome:
        """Bundles that must all be refused, in a way that says whose fault it is."""
        trace = Path(self.scene.told["host_folder"]) / f"{MARK}-setup"
        if attempt.number == 49:
            make_sdist(self.index, attempt.module.SDIST, str(trace))
        accepted, count = [], 0
        for what, name, files in attempt.module.bundles(self.scene.told):
            count += 1
            answer = self.node.put(name, archive(files))
            if answer.status == 200:
                accepted.append(what)
                self.node.remove(name)
            elif not 400 <= answer.status < 500:
                return Outcome(attempt.name, "", False, "", broken=f"{what}: {_told_by(answer)}")
        harm = [*(f"{what} was accepted" for what in accepted), *self._unrest(), *self.scene.harm(expected=False)]
        how = f"{count - len(accepted)} of {count} refused"
        return Outcome(attempt.name, "", bool(harm), "; ".join([how, *harm]))

    # ---- what may not be --------------------------------------------------------------------------------------------------

    def _held(self) -> dict[str, int]:
        return {
            "descriptors of the keeper": descriptors(self.node.keeper_pid),
            "descriptors of the control plane": descriptors(self.node.control_pid),
            **{f"bytes used of {device}": used for device, used in self._used().items() if device != "cpu"},
        }

    def _more_than(self, before: dict[str, int]) -> list[str]:
        """What is still held, after a moment for it to be given back."""
        deadline = time.monotonic() + bound(3)
        while True:
            now = self._held()
            more = [
                f"{now[what]} {what}, {was} before"
                for what, was in before.items()
                if now[what] > was + (DESCRIPTORS_MORE if what.startswith("descriptors") else 0)
            ]
            if not more or time.monotonic() > deadline:
                return more
            time.sleep(0.05)

    def _used(self) -> dict[str, int]:
        answer = self.node.fetch("GET", "/api/v1/devices")
        return {device["id"]: int(device["used_bytes"]) for device in answer.json()["devices"]}

    def _unrest(self) -> list[str]:
        """What the node and the bystander say of themselves."""
        found = []
        if not self.node.alive():
            found.append("the node is not well")
        try:
            began = time.monotonic()
            if self.node.run(BYSTANDER, {"echo": 1}, timeout_s=ANSWER_S).status != 200:
                found.append("the bystander refuses")
            elif time.monotonic() - began > bound(ANSWER_S):
                found.append("the bystander is slow")
        except OSError as error:
            found.append(f"the bystander doesn't answer: {error}")
        logs = sum(path.stat().st_size for path in (self.node.data_dir / "logs").rglob("*") if path.is_file())
        if logs > LOGS_MOST:
            found.append(f"{logs} bytes of logs")
        return found

    def _end(self, name: str, processes: Sequence[Process]) -> list[str]:
        """Ends the instances; those that are still there after the time that they have."""
        self.node.act(name, "unload", query="?grace=0")
        deadline = time.monotonic() + bound(KILL_S + 3)
        while (left := [process for process in processes if process.alive]) and time.monotonic() < deadline:
            time.sleep(0.02)
        return [f"process {process.pid} of it is still there" for process in left]


def _why(message: str) -> str:
    """The reason in a 3101's words, without the names and ids around it."""
    return message.partition("under the request: ")[2].rpartition(" (")[0] or message


def _told_by(answer: Response) -> str:
    return f"{answer.status} {answer.body[:1500].decode(errors='replace')}"


def _config(index: Path, cache: Path) -> str:
    return "\n".join(
        [
            f"[node]\ndrain_s = 2\nkill_s = {KILL_S}\nbackoff_s = 0.1",
            '[devices]\ncpu = { budget = "2GiB" }\nfake = [{ total = "1GiB" }]',
            f"[provision]\noffline = true\nfind_links = [{str(index)!r}]\ncache_dir = {str(cache)!r}",
        ]
    )


def _as_user(uid: int, leak: Path) -> list[str]:
    """Words before `fornada`: as which user, and with a descriptor that somebody forgot to close."""
    user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid >= 0 else []
    return [*user, "sh", "-c", 'exec "$@" 9<"$0"', str(leak)]


def main() -> None:
    folder, level, uid, names = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    campaign = Campaign(folder, level, uid)
    try:
        campaign.open()
    except NodeFailed as error:
        campaign.node.destroy()
        if level == "none" or "isolation" not in str(error):
            raise
        print(str(error).replace("\n", " | "), file=sys.stderr)
        campaign.scene.close()
        sys.exit(UNAVAILABLE)
    try:
        for attempt in map(named, names) if names else all_attempts():
            if marked(MARK):
                raise AssertionError(f"left of an attempt: {marked(MARK)}")
            for outcome in campaign.run(attempt):
                print(json.dumps(outcome.as_json()), flush=True)
    finally:
        campaign.close()


if __name__ == "__main__":
    main()
