"""Logs, numbers and what models print."""

import asyncio
import json
import os

import pytest

from fornada.core.names import Instant, ModelName
from fornada.telemetry import Level, Log, Metrics, Outputs, output
from fornada.telemetry.files import RotatingFile
from fornada.telemetry.log import FEED_LENGTH
from fornada.telemetry.metrics import Counts
from tests.bounds import bound

MODEL = ModelName("@test/a")


class StoppedClock:
    def now(self) -> Instant:
        return Instant(0.0)

    def wall(self) -> float:
        return 1_700_000_000.25


def line(text, **fields):
    return json.dumps({"time": "t", "stream": "stdout", "line": text, **fields}).encode() + b"\n"


def outputs(folder, *, max_bytes=1 << 20):
    return Outputs(folder, wall=StoppedClock().wall, max_bytes=max_bytes)


async def read(lines, count):
    return [(await asyncio.wait_for(anext(lines), bound(5))).line for _ in range(count)]


def test_a_rotating_file_stays_within_its_bound_and_keeps_the_newest_lines(tmp_path):
    file = RotatingFile(tmp_path / "log", max_bytes=2000)
    for number in range(1000):
        file.append(f"line {number:04}\n".encode())
    file.close()
    kept = (file.older.read_bytes() + file.path.read_bytes()).splitlines()
    assert sum(len(line) + 1 for line in kept) <= 2000
    assert kept == [f"line {number:04}".encode() for number in range(1000 - len(kept), 1000)]
    assert len(kept) >= 90


KEY = "fnd_0123456789abcdef_" + "ab" * 32


@pytest.mark.parametrize("text", [KEY, f"/client/v4/accounts/{KEY}/ai", KEY.replace("_", "%5F"), KEY.replace("_", "%5f") + KEY, KEY[:-1]])
def test_a_key_that_somebody_put_into_a_path_stands_in_no_log_and_no_feed(tmp_path, text):
    async def kept():
        log = Log(clock=StoppedClock(), file=tmp_path / "node.log")
        feed = log.watch()
        log.info("audit", path=text, account="a")
        log.debug("http.answered", route=text)
        told = await asyncio.wait_for(anext(aiter(feed)), bound(5))
        log.close()
        return json.dumps(told) + (tmp_path / "node.log").read_text()

    found = asyncio.run(kept())
    assert "abab" not in found and found.count("0123456789abcdef") == 3 * text.count("fnd"), found


def test_an_event_is_one_json_line_with_its_time_and_ids(tmp_path):
    log = Log(clock=StoppedClock(), file=tmp_path / "node.log")
    log.info("instance.ready", instance="i1", load_s=0.5)
    log.close()
    assert json.loads((tmp_path / "node.log").read_text()) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "event": "instance.ready",
        "instance": "i1",
        "load_s": 0.5,
    }


def test_the_stream_repeats_what_is_as_grave_as_asked(tmp_path, capfd):
    log = Log(clock=StoppedClock(), stream=2, stream_level=Level.WARNING, file=tmp_path / "node.log")
    log.info("quiet")
    log.error("loud")
    log.close()
    assert [json.loads(line)["event"] for line in capfd.readouterr().err.splitlines()] == ["loud"]
    assert len((tmp_path / "node.log").read_text().splitlines()) == 2


def test_a_stream_that_nobody_reads_holds_nothing_up(tmp_path):
    reading, writing = os.pipe()
    log = Log(clock=StoppedClock(), stream=writing, file=tmp_path / "node.log")
    for _ in range(200):
        log.info("happened", text="x" * 10_000)
    log.close()
    os.close(writing)
    os.close(reading)
    assert len((tmp_path / "node.log").read_text().splitlines()) == 200


async def test_a_watcher_who_sleeps_is_told_how_much_it_missed(tmp_path):
    log = Log(clock=StoppedClock())
    feed = log.watch()
    for number in range(FEED_LENGTH + 5):
        log.info("happened", number=number)
    watching = aiter(feed)
    assert await anext(watching) == {"event": "feed.missed", "count": 5}
    assert (await anext(watching))["number"] == 5
    await watching.aclose()
    log.info("nobody listens")


@pytest.mark.parametrize(
    ("count", "size"),
    [(output.FEED_LENGTH + 100, 10), (100, output.FEED_BYTES // 20), (3, output.FEED_BYTES // 2 + 1), (3, output.FEED_BYTES + 1)],
)
async def test_a_reader_who_does_not_read_holds_a_bounded_piece_and_is_told_what_it_missed(tmp_path, count, size):
    out = outputs(tmp_path, max_bytes=4096)
    out.write(MODEL, line("follow"))
    reading = out.read(MODEL, last=1, follow=True)
    assert await read(reading, 1) == ["follow"]
    for number in range(count):
        out.write(MODEL, line(f"{number:06d}".ljust(size, "x")))
    (told,) = await read(reading, 1)
    missed = int(told.split(" ", 1)[0])
    assert "not shown" in told
    kept = await read(reading, count - missed)
    assert [text[:6] for text in kept] == [f"{number:06d}" for number in range(missed, count)], "the newest are the ones that are kept"
    assert len(kept) <= output.FEED_LENGTH
    assert len(kept) == 1 or sum(map(len, kept)) <= output.FEED_BYTES
    out.write(MODEL, line("more"))
    assert await read(reading, 1) == ["more"], "nothing more was missed"
    await reading.aclose()
    out.close()


async def test_what_was_printed_is_read_back_and_followed_without_a_gap(tmp_path):
    out = outputs(tmp_path)
    out.write(MODEL, line("1") + line("2") + line("3"))
    reading = out.read(MODEL, last=2, follow=True)
    assert await read(reading, 2) == ["2", "3"]
    out.write(MODEL, line("4") + line("5"))
    assert await read(reading, 2) == ["4", "5"]
    await reading.aclose()
    assert [entry.line async for entry in out.read(MODEL, last=100, follow=False)] == ["1", "2", "3", "4", "5"]
    out.close()


async def test_lines_are_found_in_both_halves_of_a_rotated_file(tmp_path):
    out = outputs(tmp_path, max_bytes=4000)
    for number in range(100):
        out.write(MODEL, line(str(number)))
    lines = [entry.line async for entry in out.read(MODEL, last=50, follow=False)]
    assert lines == [str(number) for number in range(50, 100)]
    out.close()


async def test_output_that_is_no_log_line_is_shown_as_it_is(tmp_path):
    out = outputs(tmp_path)
    out.write(MODEL, b'{"line": 7}\nSegmentation fault\n')
    entries = [entry async for entry in out.read(MODEL, last=10, follow=False)]
    assert [(entry.stream, entry.line) for entry in entries] == [("stderr", '{"line": 7}'), ("stderr", "Segmentation fault")]
    out.close()


@pytest.mark.parametrize("name", ["@cf/org/name", "a" * 200, "ü" * 200, "..hidden", "a b"])
def test_every_model_has_a_file_of_its_own_inside_the_folder(tmp_path, name):
    path = outputs(tmp_path).path(ModelName(name))
    assert path.parent == tmp_path
    assert len(path.name.encode()) < 200
    assert path != outputs(tmp_path).path(ModelName(name + "x"))


def test_a_removed_model_leaves_no_labels_and_counts_on_where_it_comes_back():
    metrics = Metrics()
    more = Counts("fornada_more", "Of another part.", ["model"])
    metrics.add(more)
    kept = metrics.requests.at("@test/a", "ok")  # as the edge does: looked up once
    kept.value += 2
    for model in ("@test/a", "@test/b"):
        metrics.request_seconds.at(model, "run").observe(0.002)
        metrics.loads.at(model, "ok").value += 1
        more.at(model).value += 1
    metrics.device_bytes.read = lambda: [(("@test/a", "used"), 5)]
    metrics.forget("@test/a")
    assert '"@test/a"' not in metrics.render().decode().replace('device="@test/a"', "")
    assert metrics.render().decode().count('model="@test/b"') > 3
    kept.value += 1
    assert 'model="@test/a"' not in metrics.render().decode(), "who still counts doesn't bring it back"
    metrics.request_seconds.at("@test/a", "queue").observe(0.1)  # a model of that name begins again
    text = metrics.render().decode()
    assert 'fornada_requests_total{model="@test/a",outcome="ok"} 3.0' in text
    kept.value += 1
    assert 'fornada_requests_total{model="@test/a",outcome="ok"} 4.0' in metrics.render().decode()
    assert 'fornada_model_loads_total{model="@test/a"' not in text, "what nobody held is forgotten"


def test_the_promised_metrics_are_scraped_by_their_names():
    metrics = Metrics()
    metrics.requests.at("@test/a", "ok").value += 2
    metrics.request_seconds.at("@test/a", "run").observe(0.002)
    metrics.loads.at("@test/a", "ok").value += 1
    metrics.evictions.at("@test/a", "room").value += 1
    metrics.queue_length.read = lambda: [(("@test/a",), 3)]
    metrics.device_bytes.read = lambda: [(("cuda:0", "used"), 5)]
    metrics.loop_age.read = lambda: [((), 0.1)]
    metrics.isolation.read = lambda: [(("full",), 1)]
    text = metrics.render().decode()
    for expected in (
        'fornada_requests_total{model="@test/a",outcome="ok"} 2.0',
        'fornada_request_seconds_bucket{le="0.0025",model="@test/a",stage="run"} 1.0',
        'fornada_request_seconds_count{model="@test/a",stage="run"} 1.0',
        'fornada_model_loads_total{model="@test/a",outcome="ok"} 1.0',
        'fornada_evictions_total{model="@test/a",reason="room"} 1.0',
        'fornada_queue_length{model="@test/a"} 3.0',
        'fornada_device_bytes{device="cuda:0",kind="used"} 5.0',
        "fornada_scheduler_loop_age_seconds 0.1",
        'fornada_isolation_info{level="full"} 1.0',
        "fornada_requests_orphaned_total 0.0",
    ):
        assert expected in text, text
