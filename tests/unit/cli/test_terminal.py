"""What is different on a terminal: questions, colours, bars, Ctrl-C."""

import json
import re
import threading
from datetime import UTC, datetime

import pytest

from tests.bounds import bound
from tests.unit.cli.fake_node import Asked, FakeNode, Said, error, model, say
from tests.unit.cli.terminal import on_a_terminal

NAME = "@local/echo"
PATH = f"/api/v1/models/{NAME}"


@pytest.mark.parametrize(("typed", "removed", "code"), [("y\n", True, 0), ("n\n", False, 1), ("\x04", False, 130)])
def test_rm_asks_first(node: FakeNode, typed: str, removed: bool, code: int):
    node.on("GET", PATH, say(model()))
    node.on("DELETE", PATH, say({}))
    seen = on_a_terminal("rm", NAME, url=node.url, typed=typed)
    assert "Remove @local/echo (1 version, ready)? [y/N]:" in seen.text
    assert seen.code == code
    assert ("DELETE" in [asked.method for asked in node.asked]) == removed


def test_a_table_fits_and_its_states_have_colours(node: FakeNode):
    node.on("GET", "/api/v1/models", say({"models": [model(), model("@a/b", state="failed")]}))
    seen = on_a_terminal("models", url=node.url)
    assert seen.code == 0
    assert "NAME" in seen.text and "@a/b" in seen.text
    assert "\x1b[31mfailed" in seen.raw and "\x1b[32mready" in seen.raw


def test_json_is_indented_for_eyes(node: FakeNode):
    node.on("GET", "/api/v1/models", say({"models": []}))
    assert on_a_terminal("models", "--json", url=node.url).text == '{\n  "models": []\n}\n'


def hold_load(node: FakeNode) -> threading.Event:
    """A load that waits; set the event to let it end. The model tells how far it is meanwhile."""
    goes_on = threading.Event()

    def load(_: Asked) -> Said:
        goes_on.wait(bound(20))
        return say(model())

    looks: list[int] = []

    def look(_: Asked) -> Said:
        looks.append(1)
        if len(looks) == 3:
            goes_on.set()
        return say(model(state="pending", progress={"phase": "building", "text": "numpy 2.4.6", "fraction": 0.25}))

    node.on("POST", f"{PATH}/load", load)
    node.on("GET", PATH, look)
    return goes_on


def test_a_load_shows_a_bar_and_clears_it(node: FakeNode):
    hold_load(node)
    seen = on_a_terminal("load", NAME, url=node.url)
    assert seen.code == 0
    assert f"{NAME}: building" in seen.text and "25%" in seen.text and "numpy 2.4.6" in seen.text
    assert seen.text.rstrip().endswith(f"{NAME}: ready, pid 4711 on cpu, 48 MiB")


def test_ctrl_c_leaves_at_once_in_one_line(node: FakeNode):
    goes_on = hold_load(node)
    node.on("GET", PATH, say(model(state="pending", progress={"phase": "building", "text": "", "fraction": None})))
    try:
        seen = on_a_terminal("load", NAME, url=node.url, interrupt_at="building")
    finally:
        goes_on.set()
    assert seen.code == 130
    assert seen.text.rstrip().endswith("fornada: interrupted")
    assert "Traceback" not in seen.text


def test_bytes_are_not_spilt_on_a_terminal(node: FakeNode):
    node.on("GET", PATH, say(model()))
    node.on("POST", f"/client/v4/accounts/local/ai/run/{NAME}", Said(b"\x89PNG\0", type="image/png"))
    seen = on_a_terminal("run", NAME, url=node.url)
    assert seen.code == 1
    assert "5 bytes of image/png, nothing for a terminal; --out answer.png saves it" in seen.text


ASK = f"/client/v4/accounts/local/ai/run/{NAME}"
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


def test_a_model_can_not_drive_the_terminal(node: FakeNode):
    node.on("GET", PATH, say(model()))
    node.on("POST", f"/client/v4/accounts/local/ai/run/{NAME}", say({"result": {"response": EVIL}, "success": True}))
    node.on("GET", f"{PATH}/logs", Said(json.dumps({"time": "t", "stream": "stdout", "line": EVIL}).encode(), type="application/x-ndjson"))
    node.on("GET", f"{PATH}/why", say({"model": NAME, "state": "failed", "summary": EVIL, "last_failure": {"reason": EVIL}}))
    node.on("POST", f"{PATH}/load", error(503, 3102, EVIL))
    for args in (["run", NAME], ["logs", NAME], ["why", NAME], ["load", NAME]):
        raw = on_a_terminal(*args, url=node.url).raw
        assert "owned" in raw, args
        assert not {"\x1b]0", "\x1b[2J", "\x9b", "\u202e"} & {raw[i : i + n] for n in (1, 3, 4) for i in range(len(raw))}, args


@pytest.mark.parametrize("result", [{"answer": EVIL}, {"shape": [EVIL], "data": [], "pooling": EVIL}], ids=["any JSON", "vectors"])
@pytest.mark.parametrize("args", [[], ["--json"]], ids=["for eyes", "as JSON"])
def test_nor_by_an_answer_of_another_shape(node: FakeNode, result: object, args: list[str]):
    node.on("GET", PATH, say(model()))
    node.on("POST", ASK, say({"result": result, "success": True}))
    seen = on_a_terminal("run", NAME, *args, url=node.url)
    assert "owned" in seen.raw
    assert not {"\x1b", "\x9b", "\u202e"} & set(seen.raw)
    if args:
        assert json.loads(seen.raw) == result


LONG = "@fornada/smollm2-135m-instruct"


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (130, ["NAME", "TASK", "ENGINE", "VERSION", "STATE", "MEMORY", "LAST USED"]),
        (100, ["NAME", "TASK", "STATE", "MEMORY", "LAST USED"]),
        (80, ["NAME", "TASK", "STATE", "MEMORY"]),
        (70, ["NAME", "TASK", "STATE"]),
        (40, ["NAME", "STATE"]),
    ],
)
def test_a_narrow_terminal_has_fewer_columns_and_no_broken_names(node: FakeNode, columns: int, shown: list[str]):
    listed = [model(LONG, task="optical-character-recognition", engine="tensorflow", peak_bytes=157_500_000, state="stopped")]
    node.on("GET", "/api/v1/models", say({"models": listed}))
    head, row = on_a_terminal("models", url=node.url, columns=columns).text.splitlines()[:2]
    assert re.split(r"\s{2,}", head.strip()) == shown
    assert LONG in row and max(len(head), len(row)) <= columns


def test_long_text_goes_on_below_where_it_began(node: FakeNode):
    node.on("GET", PATH, say(model(description="one two three " * 10)))
    lines = on_a_terminal("models", NAME, url=node.url, columns=60).text.splitlines()
    assert max(map(len, lines)) <= 60
    (first,) = [place for place, line in enumerate(lines) if line.startswith("description  one")]
    assert lines[first + 1].startswith(" " * 13 + "t") or lines[first + 1].startswith(" " * 13 + "o")


def test_a_log_has_the_clock_on_the_wall(node: FakeNode):
    times = [datetime.now(UTC).isoformat(), "2020-01-02T03:04:05Z", "odd\x1b"]
    lines = [{"time": time, "stream": "stderr", "line": "said", "request_id": "0123456789"} for time in times]
    node.on("GET", f"{PATH}/logs", Said("".join(json.dumps(line) + "\n" for line in lines).encode(), type="application/x-ndjson"))
    today, other, odd = on_a_terminal("logs", NAME, url=node.url).text.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d 23456789 ! said", today)
    assert re.fullmatch(r"2020-01-0\d \d\d:\d\d:\d\d 23456789 ! said", other)
    assert odd == "odd\\x1b 23456789 ! said"


def test_a_model_that_wrote_nothing_is_said_to_have(node: FakeNode):
    node.on("GET", f"{PATH}/logs", Said(b"", type="application/x-ndjson"))
    assert on_a_terminal("logs", NAME, url=node.url).text == f"{NAME} has written nothing that is still kept\n"
