"""top: what it shows of memory, on a pipe and on terminals of any size."""

import json
from typing import Any

import pytest

from fornada.cli import screen
from tests.unit.cli.conftest import Cli, line
from tests.unit.cli.fake_node import FakeNode, Said, model, say
from tests.unit.cli.terminal import on_a_terminal

GIB = 1024**3


def instance(name: str, **fields: Any) -> dict[str, Any]:
    usual = {
        **model()["instances"][0],
        "model": name,
        "device": "cuda:0",
        "declared_bytes": 2 * GIB,
        "expected_bytes": GIB,
        "step": "ready",
    }
    standing = {"charged_bytes": GIB, "because": "learned", "idle_s": 3.0, "kept": False, "expected_rps": 0.5, "value": 0.25}
    return {**usual, **standing, **fields}


def residency(instances: int = 2, waits: int = 1, evictions: int = 1) -> dict[str, Any]:
    wait = {"waiting_s": 2.5, "needs_bytes": 2 * GIB, "queued": 3, "why": "2 GiB of device memory, cuda:0 has 1 GiB free"}
    gone = {"time": "2026-01-02T03:04:05Z", "device": "cuda:0", "state": "ready", "reason": "room", "why": "room"}
    return {
        "instances": [instance(f"@local/m{number}", pid=4711 + number, kept=number == 1) for number in range(instances)],
        "waits": [{"model": f"@local/w{number}", **wait} for number in range(waits)],
        "evictions": [{"model": f"@local/e{number}", "made_room_for": "@local/m0", **gone} for number in range(evictions)],
        "swap": {"window_s": 60.0, "devices": {"cuda:0": 0.62}},
    }


def device(**fields: Any) -> dict[str, Any]:
    usual = {"total_bytes": 8 * GIB, "reserved_bytes": 4 * GIB, "used_bytes": 3 * GIB, "foreign_bytes": 2 * GIB, "lingering_bytes": GIB}
    return {"id": "cuda:0", "state": "ok", "fence": "", **usual, **fields}


def scripted(node: FakeNode, told: dict[str, Any], **of_device: Any) -> None:
    node.on("GET", "/api/v1/devices", say({"devices": [device(**of_device)]}))
    node.on("GET", "/api/v1/residency", say(told))
    node.on("GET", "/metrics", Said(b"", type="text/plain"))


def text(told: dict[str, Any], *, width: int | None = None, height: int | None = None, **of_device: Any) -> list[str]:
    shown = screen.lines({"devices": [device(**of_device)], **told}, title="http://x", width=width, height=height)
    return [screen.plain(one) for one in shown]


def test_on_a_pipe_one_look_is_printed_without_control_codes(cli: Cli, node: FakeNode):
    scripted(node, residency())
    result = cli("top")
    assert result.exit_code == 0, result.stderr
    assert "\x1b" not in result.stdout
    for part in (
        "cuda:0 [######======xxxxxx~~~...] 4 GiB of 8 GiB charged, 2 GiB used, 2 GiB others', 1 GiB coming back",
        "swapping 62% of the last minute",
        "WAIT FOR ROOM (1)",
        "@local/w0  2 GiB for 2.5 s, 3 requests: 2 GiB of device memory, cuda:0 has 1 GiB free",
        "@local/e0 left cuda:0: room for @local/m0",
    ):
        assert part in result.stdout
    (row,) = [one for one in result.stdout.splitlines() if one.startswith("@local/m1")]
    assert " ".join(row.split()) == "@local/m1 4712 ready cuda:0 2 GiB 1 GiB 48 MiB 1 GiB learned 1 2 0.0 - - 3 s 0.25 kept"


def test_json_has_all_of_it_with_rates(cli: Cli, node: FakeNode):
    scripted(node, residency())
    found = json.loads(cli("top", "--json").stdout)
    assert found.keys() == {"devices", "instances", "waits", "evictions", "swap"}
    assert {"rps", "p50_s", "p99_s", "value", "charged_bytes"} <= found["instances"][0].keys()


def test_a_fence_is_shown_with_its_reason():
    assert any("; fenced (XID 79)" in one for one in text(residency(), state="fenced", fence="XID 79"))


@pytest.mark.parametrize("parts", [(0, 0, 0, 0), (1, 0, 0, 0), (8 * GIB, 8 * GIB, 8 * GIB, 8 * GIB), (1, 1, 1, 1)])
def test_a_bar_is_always_as_long_as_the_others(parts: tuple[int, int, int, int]):
    charged, used, foreign, lingering = parts
    (bar,) = [
        one
        for one in text(residency(), reserved_bytes=charged, used_bytes=used, foreign_bytes=foreign, lingering_bytes=lingering)
        if one.startswith("cuda:0")
    ]
    assert len(bar[bar.index("[") + 1 : bar.index("]")]) == screen.BAR


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("height", [3, 8, 12, 24, 60])
def test_it_never_exceeds_the_terminal(width: int, height: int):
    shown = text(residency(instances=30, waits=9, evictions=9), width=width, height=height)
    assert len(shown) <= height
    assert max(map(len, shown)) <= width


def test_a_short_terminal_says_how_many_it_leaves_out():
    shown = text(residency(instances=30, waits=0, evictions=4), width=120, height=14)
    assert shown[-1] == "... and 22 more" and "LAST EVICTIONS" not in shown
    assert len(text(residency(instances=30), width=120, height=100)) < 100


def test_names_of_strangers_do_not_drive_the_terminal():
    told = residency()
    told["waits"][0].update(model="\x1b[2J", why="\x1b]0;owned\x07")
    assert not any("\x1b" in one or "\x07" in one for one in text(told))


def test_it_redraws_until_q(node: FakeNode):
    scripted(node, residency())
    seen = on_a_terminal("top", "--every", "0.2", url=node.url, type_at=("4711", "q"))
    assert seen.code == 0
    assert "@local/m0" in seen.text and "Traceback" not in seen.text
    assert seen.raw.endswith("\x1b[?25h\x1b[?1049l"), "the cursor and the screen are as they were"


def test_ctrl_c_ends_it_well(node: FakeNode):
    scripted(node, residency())
    seen = on_a_terminal("top", "--every", "0.2", url=node.url, interrupt_at="4711")
    assert seen.code == 0 and "Traceback" not in seen.text


def test_once_prints_no_control_codes_on_a_terminal_either(node: FakeNode):
    scripted(node, residency())
    seen = on_a_terminal("top", "--once", url=node.url, columns=80)
    assert (seen.code, "\x1b" in seen.raw) == (0, False)
    assert max(map(len, seen.text.splitlines())) <= 80


def test_a_node_that_goes_away_is_told_in_one_line(node: FakeNode):
    answers = iter([say(residency())])
    scripted(node, residency())
    node.on("GET", "/api/v1/residency", lambda _: next(answers, Said(b"", close=True)))
    seen = on_a_terminal("top", "--every", "0.2", url=node.url)
    assert seen.code == 1 and "Traceback" not in seen.text
    assert seen.raw.partition("\x1b[?1049l")[2].startswith("fornada: ")


def test_a_refusal_is_one_line(cli: Cli, node: FakeNode):
    node.on("GET", "/metrics", Said(b"", type="text/plain"))
    result = cli("top", "--once")
    assert result.exit_code == 1 and "No route" in line(result)
