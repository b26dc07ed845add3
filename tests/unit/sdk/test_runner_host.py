"""Several instances in one process: each comes, serves and goes alone. The models have code here, which the node never lets share."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fornada_sdk.wire.messages import Kind
from tests.unit.sdk.driver import Start
from tests.unit.sdk.host_driver import SharedProcess

SLOW = """
    import time
    def handle_request(request, context):
        print("began")
        time.sleep(request.body.json["s"])
        return {"cancelled": context.cancelled}
"""


@pytest.fixture
def host(start: Start, tmp_path: Path) -> Iterator[SharedProcess]:
    shared = SharedProcess(start(assign=False), tmp_path)
    yield shared
    shared.close()


def test_members_answer_side_by_side_from_one_process(host: SharedProcess):
    _, one = host.ready("one")
    _, two = host.ready("two")
    for number in range(3):
        for name, plane in (("one", one), ("two", two)):
            assert plane.call({"x": number}) == {"x": number, "pid": host.runner.pid, "model": name}
    assert one.ready()["grown_bytes"] >= 0


def test_what_a_member_prints_is_in_its_own_output(host: SharedProcess):
    shout = "import os\ndef handle_request(request, context):\n    os.write(2, b'raw\\n')\n    print('half', end='')\n    return {}\n"
    one, first = host.ready("one")
    two, second = host.ready("two", shout)
    first.call({"x": "mine"})
    second.call({})
    first.call({"x": "again"})
    assert "got mine" in one.output and "got again" in one.output and "raw" not in one.output
    assert "raw" in two.output and "half" in two.output and "got" not in two.output


def test_a_member_s_scratch_is_made_when_it_is_asked_for_and_goes_with_the_member(host: SharedProcess, tmp_path: Path):
    writes = """
        def handle_request(request, context):
            (context.scratch / "note").write_text(request.body.json)
            return [path.name for path in context.scratch.parent.iterdir()]
    """
    home = tmp_path / "home"
    home.mkdir()
    one, first = host.ready("one", writes, scratch=str(home / "one"))
    _, second = host.ready("two", writes, scratch=str(home / "two"))
    assert list(home.iterdir()) == []
    assert first.call("a") == ["one"] and sorted(second.call("b")) == ["one", "two"]
    first.stop(1.0)
    assert one.how_it_went() == "left"
    assert [path.name for path in home.iterdir()] == ["two"] and (home / "two/note").read_text() == "b"


def test_a_stop_ends_one_member_and_its_word_reaches_the_keeper(host: SharedProcess):
    one, first = host.ready("one")
    two, second = host.ready("two")
    first.stop(1.0)
    assert one.how_it_went() == "left"
    first.wait_closed()
    assert second.call({"x": 1})["model"] == "two" and two.stays()


def test_the_keeper_s_stop_lets_what_runs_end(host: SharedProcess):
    one, first = host.ready("one", SLOW)
    call = first.invoke({"s": 0.2})
    waiting = first.invoke({"s": 0.0})
    one.until_output("began")
    one.channel.send(Kind.STOP, {"grace_s": 5})
    assert first.answer(call) == {"cancelled": False}
    assert first.end_of(waiting).head.get("status", "ok") in ("ok", "cancelled")
    assert one.how_it_went() == "left"


def test_a_member_whose_load_fails_says_why_and_goes_alone(host: SharedProcess):
    _, first = host.ready("one")
    bad = host.join("bad", "raise RuntimeError('no weights')\n")
    plane = bad.attach()
    told = plane.wait(lambda message: message.kind is Kind.FAILED or message.json.get("state") == "failed").json
    assert "no weights" in told["reason"]
    assert bad.how_it_went() == "left"
    assert "no weights" in bad.output
    assert first.call({"x": 1})["model"] == "one"


def test_a_member_that_is_stopped_before_its_load_never_loads(host: SharedProcess):
    host.ready("one")
    two = host.join("two", "print('loaded')\n" + "def handle_request(request, context): return {}\n")
    two.channel.send(Kind.STOP, {"grace_s": 0})
    assert two.how_it_went() in ("left", "lost")


def test_an_assignment_that_can_t_be_read_is_declined(host: SharedProcess):
    _, first = host.ready("one")
    odd = host.join("odd", threads_="x", engine=7)
    assert odd.how_it_went() == "left"
    assert first.call({"x": 1})["model"] == "one"


def test_a_member_that_the_keeper_lets_go_of_ends_alone(host: SharedProcess):
    one, first = host.ready("one")
    _, second = host.ready("two")
    one.channel.close()
    first.wait_closed()
    assert second.call({"x": 1})["model"] == "two"


def test_the_end_of_the_host_s_channel_ends_the_process(host: SharedProcess):
    host.ready("one")
    host.runner.keeper.close()
    assert host.runner.exit_code() == 0


def test_sigterm_lets_every_member_finish(host: SharedProcess):
    one, first = host.ready("one", SLOW)
    two, second = host.ready("two")
    call = first.invoke({"s": 0.3})
    one.until_output("began")
    second.invoke({"x": 1})
    host.runner.signal(signal.SIGTERM)
    assert first.answer(call) == {"cancelled": False}
    assert {one.how_it_went(), two.how_it_went()} <= {"left", "lost"}
    assert host.runner.exit_code() == 0


def test_a_busy_member_lets_the_others_have_their_turn(host: SharedProcess):
    _, busy = host.ready("busy", SLOW)
    _, other = host.ready("other")
    busy.send([message for _ in range(60) for message in busy.invocation(busy.next_id(), {"s": 0.01})])
    answer = other.end_of(other.invoke({"x": 1}))
    last = busy.end_of((busy.epoch << 40) | 60)
    assert answer.at < last.at, "it waited for all that the other had to do"


def test_batches_are_made_of_what_is_there(host: SharedProcess):
    batched = """
        import fornada_sdk
        class Model(fornada_sdk.Model):
            def run_batch(self, inputs, context):
                return [{"of": len(inputs)} for _ in inputs]
    """
    _, plane = host.ready("one", batched, serving={"max_batch": 4, "max_wait_ms": 5000})
    ids = [plane.next_id() for _ in range(4)]
    plane.send([message for id in ids for message in plane.invocation(id, {})])
    assert [plane.answer(id)["of"] for id in ids] == [4, 4, 4, 4]


def test_a_successor_gets_what_its_predecessor_didn_t_take(host: SharedProcess):
    one, first = host.ready("one", SLOW)
    call = first.invoke({"s": 0.2})
    one.until_output("began")
    first.close()
    second = one.attach()
    assert call in second.kind(Kind.HELLO).json["in_flight"]
    assert second.answer(call) == {"cancelled": False}


def test_coming_and_going_leaves_no_descriptor(host: SharedProcess):
    host.ready("stays")
    before = host.descriptors()
    for number in range(10):
        member, plane = host.ready(f"m{number}")
        plane.stop(0)
        assert member.how_it_went() == "left"
    host.until_descriptors(before)


def test_a_crash_shows_in_the_output_of_whose_call_it_was(host: SharedProcess):
    crash = "import ctypes\ndef handle_request(request, context): ctypes.string_at(0)\n"
    one, _ = host.ready("one")
    two, plane = host.ready("two", crash)
    plane.invoke({})
    assert host.runner.exit_code() == -signal.SIGSEGV
    assert (one.how_it_went(), two.how_it_went()) == ("lost", "lost")
    assert "Segmentation fault" in two.output and "Segmentation fault" not in one.output
