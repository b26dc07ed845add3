"""Shared files in a real runner: what model code gets out of them stays its own, and no answer is lost with a control plane's file."""

import os
import random
import socket
import time
from pathlib import Path

from fornada_sdk.wire.arena import PLACE, MemoryFile
from fornada_sdk.wire.framing import MORE, STORED, frame, split
from fornada_sdk.wire.messages import Kind, encode, invoke_head, split_head
from tests.bounds import bound
from tests.harness.waiting import until
from tests.unit.sdk.driver import Plane, Runner, Start

MODEL = """
    import os, time
    import fornada_sdk

    class Model(fornada_sdk.Model):
        kept = None

        def run(self, request, context):
            what = request.query.get("what")
            if what == "keep":
                self.kept = request.body.bytes
                return {"size": len(self.kept), "type": type(self.kept).__name__}
            if what == "kept":
                return self.kept
            if what == "fork":
                read, write = os.pipe()
                if not (child := os.fork()):
                    names = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
                    os.write(write, b"%d" % sum("memfd:" in name for name in names))
                    os._exit(0)
                os.waitpid(child, 0)
                return {"files": int(os.read(read, 10))}
            return request.body.bytes
"""
SIZE = 8 * 1024 * 1024


def some(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def give(plane: Plane, name: str) -> MemoryFile:
    descriptor = os.memfd_create(f"test-{name}")
    os.ftruncate(descriptor, SIZE)
    plane.sock.send(frame(Kind.ARENA, 0, encode({})))
    socket.send_fds(plane.sock, [frame(Kind.ARENA, 0, encode({name: SIZE}))], [descriptor])
    return MemoryFile(descriptor, SIZE)


def invoke_stored(plane: Plane, file: MemoryFile, at: int, body: bytes, **query: str) -> int:
    file.write(at, [body])
    id = plane.next_id()
    head = encode({"request_id": "r", "trace_id": "t", "account": "local", "type": "application/octet-stream", "query": query})
    plane.send([frame(Kind.INVOKE, id, invoke_head(head, 30.0) + PLACE.pack(at, len(body)), flags=STORED)])
    return id


def shared(runner: Runner) -> int:
    """How many of the files the runner has open."""
    count = 0
    for entry in Path(f"/proc/{runner.pid}/fd").iterdir():
        try:
            count += os.readlink(entry).startswith("/memfd:test-")
        except FileNotFoundError:
            continue
    return count


def wait_packets(plane: Plane) -> list[tuple[int, int, int, int, bytes]]:
    """Frames read by the test itself, up to the first ANSWER's beginning."""
    found: list[tuple[int, int, int, int, bytes]] = []
    plane.sock.settimeout(bound(10))
    while not any(kind == Kind.ANSWER for kind, *_ in found):
        packet = plane.sock.recv(65536)
        assert packet
        found += [(kind, flags, part, id, bytes(payload)) for kind, flags, part, id, payload in split(packet)]
    return found


def test_what_model_code_keeps_of_a_body_stays_what_it_was(start: Start):
    runner = start(MODEL)
    plane = runner.attach()
    plane.ready()
    requests = give(plane, "requests")
    assert plane.kind(Kind.ARENA).json == {"requests": SIZE}
    body = some(3_000_000, 1)
    kept = plane.answer(invoke_stored(plane, requests, 65536, body, what="keep"))
    assert kept == {"size": len(body), "type": "bytes"}
    requests.write(0, [some(SIZE, 2)])
    answer = plane.end_of(plane.invoke({}, query={"what": "kept"}))
    assert answer.body == body
    requests.close()


def test_an_answer_that_nobody_acknowledged_outlives_the_file_it_lay_in(start: Start):
    runner = start(MODEL)
    plane = runner.attach(acknowledge=False, reading=False)
    requests, answers = give(plane, "requests"), give(plane, "answers")
    body = some(3_000_000, 1)
    id = invoke_stored(plane, requests, 0, body)
    (answer,) = [entry for entry in wait_packets(plane) if entry[0] == Kind.ANSWER]
    _, flags, _, answered, payload = answer
    assert (flags, answered) == (STORED, id)
    at, size = PLACE.unpack(bytes(split_head(payload)[1]))
    assert answers.read(at, size) == body
    answers.write(0, [bytes(SIZE)])  # whatever becomes of it
    plane.close()
    requests.close()
    answers.close()
    until(lambda: shared(runner) == 0, within_s=5, what="the files of a control plane that has gone are closed")

    successor = runner.attach()
    assert successor.kind(Kind.HELLO).json["in_flight"] == [id]
    assert successor.end_of(id).body == body


def test_it_lies_in_the_successor_s_file_if_that_one_has_one_by_then(start: Start):
    runner = start(MODEL)
    first = runner.attach(acknowledge=False, reading=False)
    second = runner.attach(acknowledge=False, reading=False)
    requests, answers = give(first, "requests"), give(second, "answers")
    until(lambda: shared(runner) == 2, within_s=5, what="both have arrived")
    body = some(3_000_000, 1)
    id = invoke_stored(first, requests, 0, body)
    (answer,) = [entry for entry in wait_packets(first) if entry[0] == Kind.ANSWER]
    assert answer[1] == MORE, "the first has no file for answers"
    first.close()
    (again,) = [entry for entry in wait_packets(second) if entry[0] == Kind.ANSWER]
    assert (again[1], again[3]) == (STORED, id)
    at, size = PLACE.unpack(bytes(split_head(again[4])[1]))
    assert answers.read(at, size) == body
    requests.close()
    answers.close()


def test_the_runner_gives_back_what_no_answer_lies_in(start: Start):
    runner = start(MODEL)
    plane = runner.attach(acknowledge=False)
    plane.ready()
    requests, answers = give(plane, "requests"), give(plane, "answers")
    id = plane.next_id()
    for number in range(3):
        invoke_stored(plane, requests, 0, some(1_000_000, number))
        time.sleep(0.05)
    until(lambda: os.fstat(answers.descriptor).st_blocks * 512 > 2_900_000, within_s=5, what="three answers lie in the file")
    plane.ack(id + 1, id + 3)
    plane.send([frame(Kind.TRIM, 0)])
    until(lambda: os.fstat(answers.descriptor).st_blocks * 512 <= 1_048_576, within_s=5, what="two are given back")
    assert answers.read(1_048_576, 1_000_000) == some(1_000_000, 1)
    requests.close()
    answers.close()


def test_a_process_that_model_code_forks_has_neither_file(start: Start):
    runner = start(MODEL)
    plane = runner.attach()
    plane.ready()
    requests, answers = give(plane, "requests"), give(plane, "answers")
    plane.kind(Kind.ARENA)
    until(lambda: shared(runner) == 2, within_s=5, what="both have arrived")
    assert plane.call({}, query={"what": "fork"}) == {"files": 0}
    requests.close()
    answers.close()
