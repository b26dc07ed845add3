"""A model that heeds neither its deadline nor its caller's leave costs its place cancel_s, and nobody has to come and unload it."""

import json
from collections.abc import Iterator

import pytest

from tests.bounds import bound
from tests.harness.bundles import archive
from tests.harness.node import Node
from tests.harness.processes import all_gone, seen
from tests.harness.waiting import Background, until

TABLE = '[serving]\ntimeout_s = 1.0\nidle_timeout_s = 300.0\n[resources]\nmemory = "128MiB"\n'
HANGS = {
    # Exponential: it would take years, in C, and lets go of the interpreter's lock at no time.
    "in C, with the interpreter's lock": 'import re\ndef handle_request(request, context):\n    WAIT\n    re.match("(a+)+$", "a" * 64 + "b")\n',
    "and swallows every exception": """
import time
def handle_request(request, context):
    WAIT
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass
""",
    "as a task that won't be cancelled": """
import asyncio
async def handle_request(request, context):
    WAIT
    while True:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            pass
""",
}
PATIENT = {"x-timeout-ms": str(int(bound(60) * 1000))}
"""Of a caller who waits longer than the author allows: nothing of it is in the way on a busy machine."""
GO_ON = 'if not (request.body.json or {}).get("hang"):\n        return {"pid": context.pid}'


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("impatient"), config="[node]\ndrain_s = 1\nkill_s = 2\ncancel_s = 1\n").start()
    yield node
    try:
        assert node.stop() == 0, node.said()
    finally:
        node.destroy()


@pytest.mark.parametrize("how", HANGS)
def test_its_process_is_killed_and_who_waits_behind_it_is_answered_by_the_next(impatient: Node, fresh_name, how: str):
    name = fresh_name()
    impatient.deploy(name, archive({"model.toml": f'name = "{name}"\n{TABLE}', "model.py": HANGS[how].replace("WAIT", GO_ON)}))
    impatient.load(name)
    first = impatient.run(name, {}, headers=PATIENT).result
    process = seen(impatient.pids(name)[0])
    refused = impatient.run(name, {"hang": True}, timeout_s=bound(20))
    assert (refused.status, refused.code) == (408, 3046), refused.body
    behind = impatient.run(name, {}, headers=PATIENT, timeout_s=bound(70))
    assert behind.status == 200, behind.body
    assert behind.result["pid"] != first["pid"]
    all_gone([process], within_s=5, what="the process that hung")
    assert impatient.metrics().total("fornada_evictions_total", model=name, reason="hung") == 1
    entries = map(json.loads, (impatient.data_dir / "logs/node.log").read_text().splitlines())
    (told,) = (entry for entry in entries if entry["event"] == "instance.hung" and entry["model"] == name)
    assert told["pid"] == first["pid"] and told["given_up_s"] >= 1


def test_a_caller_who_leaves_before_the_deadline_ends_nothing_that_would_have_been_done_in_time(impatient: Node, fresh_name):
    name = fresh_name()
    code = "import re, time\ndef handle_request(request, context):\n    time.sleep(2.5)\n    return {'pid': context.pid}\n"
    table = TABLE.replace("1.0", "60.0", 1)
    impatient.deploy(name, archive({"model.toml": f'name = "{name}"\n{table}', "model.py": code}))
    impatient.load(name)
    pid = impatient.pids(name)[0]
    left = impatient.run(name, {}, headers={"x-timeout-ms": "200"})
    assert left.status == 408
    assert impatient.run(name, {}, headers=PATIENT).result["pid"] == pid


def test_what_the_others_in_its_process_get_may_be_asked_again(impatient: Node, fresh_name):
    name = fresh_name()
    code = HANGS["in C, with the interpreter's lock"].replace("WAIT", GO_ON)
    table = f'name = "{name}"\n{TABLE.replace("timeout_s", "concurrency = 4" + chr(10) + "timeout_s", 1)}'
    impatient.deploy(name, archive({"model.toml": table, "model.py": code}))
    impatient.load(name)
    with Background() as background:
        hung = background.start(lambda: impatient.run(name, {"hang": True}, timeout_s=bound(20)))
        until(lambda: impatient.model(name)["instances"][0]["in_flight"], within_s=10, what="it hangs")
        beside = background.start(lambda: impatient.run(name, {}, headers=PATIENT, timeout_s=bound(70)))
        assert hung.result().status == 408
        told = beside.result()
    assert (told.status, told.code) == (502, 3101), told.body
    assert "it hung" in told.message
    assert impatient.run(name, {}, headers=PATIENT).status == 200
