"""load, unload, sleep, pin, reset, rm: each tells the node once and prints what became true."""

import json

import pytest

from tests.unit.cli.conftest import Cli, line
from tests.unit.cli.fake_node import FakeNode, error, model, say

NAME = "@local/echo"
PATH = f"/api/v1/models/{NAME}"


@pytest.mark.parametrize("verb", ["load", "unload", "sleep", "reset"])
def test_a_verb_says_the_state_it_led_to(cli: Cli, node: FakeNode, verb: str):
    state = "ready" if verb == "load" else "stopped"
    node.on("POST", f"{PATH}/{verb}", say(model(state=state, instances=model()["instances"] if state == "ready" else [])))
    result = cli(verb, NAME)
    assert result.exit_code == 0
    assert result.stdout == (f"{NAME}: ready, pid 4711 on cpu, 48 MiB\n" if state == "ready" else f"{NAME}: stopped\n")
    assert json.loads(cli(verb, NAME, "--json").stdout)["state"] == state


def test_the_process_of_a_version_that_leaves_is_no_second_ready_one(cli: Cli, node: FakeNode):
    serving = model()["instances"][0]
    leaving = {**serving, "pid": 4700, "state": "stopping", "resident_bytes": 0}
    node.on("POST", f"{PATH}/load", say(model(instances=[serving, leaving])))
    assert cli("load", NAME).stdout == f"{NAME}: ready, pid 4711 on cpu, 48 MiB, pid 4700 on cpu, stopping\n"


@pytest.mark.parametrize(("given", "sent"), [([], {}), (["--grace", "0"], {"grace": "0"}), (["--grace", "2.5"], {"grace": "2.5"})])
def test_unload_hands_its_grace_on(cli: Cli, node: FakeNode, given: list[str], sent: dict[str, str]):
    node.on("POST", f"{PATH}/unload", say(model(state="stopped")))
    assert cli("unload", NAME, *given).exit_code == 0
    assert node.one("POST", f"{PATH}/unload").query == sent


@pytest.mark.parametrize("grace", ["-1", "nan", "inf"])
def test_a_grace_that_is_no_time_is_refused(cli: Cli, grace: str):
    assert cli("unload", NAME, "--grace", grace).exit_code == 2


@pytest.mark.parametrize(("given", "pinned"), [([], True), (["--off"], False)])
def test_pin_can_be_undone(cli: Cli, node: FakeNode, given: list[str], pinned: bool):
    node.on("POST", f"{PATH}/pin", say(model(pinned=pinned)))
    result = cli("pin", NAME, *given)
    assert result.stdout == f"{NAME}: {'pinned' if pinned else 'no longer pinned'}\n"
    assert node.one("POST", f"{PATH}/pin").json == {"pinned": pinned}
    assert json.loads(cli("pin", NAME, *given, "--json").stdout)["pinned"] is pinned


def test_a_version_or_a_label_may_be_named(cli: Cli, node: FakeNode):
    node.on("POST", f"{PATH}:canary/load", say(model()))
    assert cli("load", f"{NAME}:canary").exit_code == 0


def test_a_verb_that_is_refused_fails(cli: Cli, node: FakeNode):
    node.on("POST", f"{PATH}/sleep", error(409, 5011, "it is stopped"))
    result = cli("sleep", NAME)
    assert result.exit_code == 1
    assert line(result) == "fornada: it is stopped [5011, the request's fault]"


def test_rm_removes_without_asking_where_there_is_no_terminal(cli: Cli, node: FakeNode):
    node.on("DELETE", PATH, say({}))
    result = cli("rm", NAME)
    assert (result.exit_code, result.stdout) == (0, f"{NAME}: removed\n")


def test_rm_removes_one_version(cli: Cli, node: FakeNode):
    node.on("DELETE", f"{PATH}:3f1c0a9b2d4e", say({}))
    assert cli("rm", f"{NAME}:3f1c0a9b2d4e", "--yes").exit_code == 0


def test_unfence_of_what_is_no_card_says_where_the_devices_are_shown(cli: Cli, node: FakeNode):
    node.on("PATCH", "/api/v1/devices/cpu", error(400, 5006, "the cpu takes no changes"))
    result = cli("unfence", "cpu")
    assert result.exit_code == 1
    assert line(result) == "fornada: cpu can't be unfenced: 'fornada top --once' shows the devices, and which are fenced"
