"""One example of every message as bytes, and how it lies in a file that people can compare.

A golden file begins with a line of words and holds a dump of the packets: offset, 16 bytes in hex, the same as text. A packet
begins with a line `packet N`. FORNADA_TEST_GOLDEN=write writes them anew, for a change of the wire that is wanted (and then
raises WIRE_VERSION).
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fornada_sdk.wire.arena import PLACE
from fornada_sdk.wire.framing import MAX_PACKET, STORED, frame, frames, pack
from fornada_sdk.wire.messages import CREDIT_BODY, OK_HEAD, TAKEN_BODY, Kind, encode, invoke_head, with_head

FOLDER = Path(__file__).parent / "golden"
WRITES = os.environ.get("FORNADA_TEST_GOLDEN") == "write"
ID = (3 << 40) | 7
"""Epoch 3, the seventh request."""


class Example(NamedTuple):
    """`packets` is what the wire carries."""

    name: str
    words: str
    packets: Sequence[bytes]


def _json(name: str, words: str, kind: Kind, payload: dict[str, Any], *, id: int = 0) -> Example:
    return Example(name, words, list(pack([frame(kind, id, encode(payload))])))


def _raw(name: str, words: str, messages: list[bytes]) -> Example:
    return Example(name, words, list(pack(messages)))


INVOKE_HEAD = {
    "request_id": "r-1",
    "trace_id": "0a1b2c3d-0000-4000-8000-333344445555",
    "account": "local",
    "headers": {"accept-language": "pt"},
    "query": {"detect_language": "true"},
    "stream": True,
}
TENSORS_HEAD = {
    "request_id": "r-3",
    "trace_id": "t",
    "account": "local",
    "type": "application/vnd.fornada.tensors",
    "tensors": {"tensors": [["x", "FP32", [1], 4], ["b", "BYTES", [1], 5]], "parameters": {"k": 1}, "wanted": ["y"]},
}
TENSORS_ANSWER = {
    "type": "application/vnd.fornada.tensors",
    "tensors": {"tensors": [["y", "FP32", [1], 4]], "parameters": {"note": "a"}},
}
PARTS_HEAD = {"request_id": "r-2", "trace_id": "t", "account": "local", "parts": [["", 15], ["image", 4]]}
FULL_HEAD = {"type": "image/png", "headers": {"x-seed": "7"}, "http_status": 201, "run_s": 0.25, "usage": {"input_tokens": 3}}
REFUSED_HEAD = {"status": "bad_request", "message": "too short"}
OCTETS = "application/octet-stream"
TENSORS = {"inputs": [{"name": "x", "dtype": "FP32", "shape": [-1]}], "outputs": []}
READY = {"load_s": 1.25, "warmup_s": 0.5, "streaming": False, "tensors": TENSORS, "pipelining": 64}
ASSIGNMENT = {
    "instance": "probe-1a2b",
    "model": "@local/probe",
    "version": "0123456789ab",
    "account": "local",
    "engine": "python",
    "folder": "/data/bundles/0123456789ab",
    "entry": "model.py",
    "artifacts": {"weights/model.onnx": "/data/artifacts/ab/cd"},
    "scratch": "/data/scratch/probe-1a2b",
    "settings": {"load_s": 0.5},
    "command": {},
    "task": "custom",
    "resources": {"memory_bytes": 536870912, "threads": 1},
    "device": {"id": "cpu", "kind": "cpu", "memory_bytes": 0},
    "serving": {"concurrency": 1, "max_batch": 1, "max_wait_ms": 0, "max_body": 10485760},
    "load_attempt": 1,
    "load_count": 1,
    "tensors": TENSORS,
    "example": "",
    "release": "0.1.0",
    "network": ["api.example.com:443"],
    "host": "",
    "rest_after_s": 4.0,
    "adapters": "/var/lib/fornada/finetunes/a",
}
LIMITS = {"memory_bytes": 536870912, "open_files": 1024}

EXAMPLES: Sequence[Example] = (
    # runner -> control plane
    _json(
        "hello_loading",
        "the first message of every attachment",
        Kind.HELLO,
        {
            "wire": 1,
            "release": "0.1.0",
            "instance": "probe-1a2b",
            "pid": 4711,
            "state": "loading",
            "in_flight": [],
            "arenas": True,
            "progress": {"phase": "loading", "text": "weights", "fraction": 0.5},
        },
    ),
    _json(
        "hello_ready",
        "to a successor: what comes, and what is booked",
        Kind.HELLO,
        {
            "wire": 1,
            "release": "0.1.0",
            "instance": "probe-1a2b",
            "pid": 4711,
            "state": "ready",
            "in_flight": [ID],
            "arenas": True,
            **READY,
            "booked": {"cuda:0": 1048576},
        },
    ),
    _raw("taken", "the model listens, and has taken what was said so far", [frame(Kind.TAKEN, ID, TAKEN_BODY.pack(65540))]),
    _raw(
        "input",
        "what the caller of a conversation says: a text, and bytes",
        [frame(Kind.INPUT, ID, b"\x01" + "olá".encode()), frame(Kind.INPUT, ID, b"\x02\x00\xff")],
    ),
    _json("progress", "while loading", Kind.PROGRESS, {"phase": "warming", "text": "first inference", "fraction": None}),
    _json("ready", "loaded and warmed up", Kind.READY, READY),
    _json(
        "failed",
        "it will not become ready",
        Kind.FAILED,
        {"reason": "ValueError: no weights", "kind": "load", "detail": "ValueError: no weights\n"},
    ),
    _raw("answer_ok", "the usual answer: an empty head", [frame(Kind.ANSWER, ID, with_head(OK_HEAD) + b'{"echo":1}')]),
    _raw(
        "answer_tensors",
        "a tensor, and a parameter beside it",
        [frame(Kind.ANSWER, ID, with_head(encode(TENSORS_ANSWER)) + b"\x00\x00\x80?")],
    ),
    _raw("answer_bytes", "an answer with a type, headers and usage", [frame(Kind.ANSWER, ID, with_head(encode(FULL_HEAD)) + b"\x89PNG")]),
    _raw(
        "answer_stored",
        "an answer whose body of 150,000 bytes lies at 65536 in the answers' file",
        [frame(Kind.ANSWER, ID, with_head(encode({"type": OCTETS})) + PLACE.pack(65536, 150_000), flags=STORED)],
    ),
    _raw("answer_refused", "model code raised BadRequest", [frame(Kind.ANSWER, ID, with_head(encode(REFUSED_HEAD)))]),
    _raw("stream", "a stream begins", [frame(Kind.STREAM, ID, with_head(OK_HEAD))]),
    _raw(
        "items",
        "two items and the end, in one packet",
        [
            frame(Kind.ITEM, ID, b'{"step":0}', part=0),
            frame(Kind.ITEM, ID, b'{"step":1}', part=1),
            frame(Kind.END, ID, encode({"status": "ok", "run_s": 0.5})),
        ],
    ),
    _json("end_raised", "a stream that broke", Kind.END, {"status": "raised", "message": "ValueError: broke"}, id=ID),
    _json("slept", "device memory has been given back", Kind.SLEPT, {"sleep_s": 0.25}),
    _json("woken", "and could not be taken again", Kind.WOKEN, {"failed": "OutOfDeviceMemory: cuda:0 has 0 free of 8 GiB"}),
    _json("sleep", "give device memory back", Kind.SLEEP, {}),
    _json("wake", "take it again", Kind.WAKE, {}),
    _json("book", "device memory, please", Kind.BOOK, {"device": "cuda:0", "bytes": 1048576, "release_delay_s": 0.5}, id=1),
    # control plane -> runner
    _raw(
        "invoke",
        "a request of JSON, 30 s before its deadline",
        [frame(Kind.INVOKE, ID, invoke_head(encode(INVOKE_HEAD), 30.0) + b'{"prompt":"x"}')],
    ),
    _raw(
        "invoke_parts",
        "JSON and a binary field",
        [frame(Kind.INVOKE, ID, invoke_head(encode(PARTS_HEAD), 0.5) + b'{"prompt": "x"}\x89PNG')],
    ),
    _raw(
        "invoke_tensors",
        "two tensors, one behind the other",
        [frame(Kind.INVOKE, ID, invoke_head(encode(TENSORS_HEAD), 30.0) + b"\x00\x00\x80?\x01\x00\x00\x00a")],
    ),
    _raw(
        "invoke_stored",
        "a request whose body of 150,000 bytes lies at 65536 in the requests' file",
        [frame(Kind.INVOKE, ID, invoke_head(encode(INVOKE_HEAD), 30.0) + PLACE.pack(65536, 150_000), flags=STORED)],
    ),
    _raw("cancel", "the caller has gone", [frame(Kind.CANCEL, ID)]),
    _raw("ack", "two answers have arrived", [frame(Kind.ACK, 0, ID.to_bytes(8, "little") + (ID + 1).to_bytes(8, "little"))]),
    _raw("credit", "64 KiB of a stream were taken", [frame(Kind.CREDIT, ID, CREDIT_BODY.pack(65536))]),
    _json("stop", "no new work", Kind.STOP, {"grace_s": 2.5}),
    _json("booked", "granted", Kind.BOOKED, {"ok": True, "message": ""}, id=1),
    _raw("trim", "give back what the answers' file doesn't need", [frame(Kind.TRIM, 0)]),
    # both ways
    Example(
        "arena",
        "the requests' file: announced, passed, and taken by the runner",
        [frame(Kind.ARENA, 0, encode(said)) for said in ({}, {"requests": 41943040}, {"requests": 41943040})],
    ),
    _raw(
        "parts",
        "a body of 150,000 bytes",
        list(frames(Kind.ANSWER, Kind.PART, ID, with_head(encode({"type": OCTETS})), [bytes(range(250)) * 600])),
    ),
    # keeper -> runner
    _json("assign", "what to run, with the outbound channel", Kind.ASSIGN, ASSIGNMENT),
    _json("attach", "with one descriptor", Kind.ATTACH, {"epoch": 3}),
    _json("join", "one more for a process that several share; with channel and output", Kind.JOIN, {**ASSIGNMENT, "host": "host-9f8e"}),
    # control plane <-> keeper
    _json(
        "welcome",
        "with the listeners' descriptors",
        Kind.WELCOME,
        {
            "epoch": 3,
            "keeper_pid": 11,
            "main_pid": 10,
            "control_pid": 12,
            "listeners": 1,
            "instances": 1,
            "ended": 0,
            "builds": [{"build": "env-0123", "pid": 4712}],
        },
    ),
    _json(
        "spawn",
        "start a runner",
        Kind.SPAWN,
        {
            "instance": "probe-1a2b",
            "argv": ["/env/bin/python", "-I"],
            "env": {"PATH": "/bin"},
            "cwd": "/data/scratch/probe-1a2b",
            "limits": LIMITS,
            "assignment": ASSIGNMENT,
            "memo": {"model": "@local/probe"},
            "host": "",
            "outbound": True,
        },
    ),
    _json(
        "spawn_shared",
        "start a runner in a process that others share",
        Kind.SPAWN,
        {
            "instance": "mlp-3c4d",
            "argv": ["/env/bin/python", "-I"],
            "env": {"PATH": "/bin"},
            "cwd": "/data/scratch/host-9f8e",
            "limits": LIMITS,
            "assignment": {**ASSIGNMENT, "host": "host-9f8e"},
            "memo": {"model": "@local/mlp", "host": "host-9f8e"},
            "host": "host-9f8e",
            "outbound": False,
        },
    ),
    _json(
        "spawned",
        "with link, output and outbound channel",
        Kind.SPAWNED,
        {"instance": "probe-1a2b", "pid": 4711, "memo": {"model": "@local/probe"}, "outbound": True, "start": "fork"},
    ),
    _json("refused", "could not be started", Kind.REFUSED, {"instance": "probe-1a2b", "reason": "No such file or directory"}),
    _json(
        "build",
        "run a build",
        Kind.BUILD,
        {"build": "env-0123", "argv": ["uv", "pip"], "env": {}, "cwd": "/", "limits": LIMITS, "log": "/data/logs/b"},
    ),
    _json("built", "it has started", Kind.BUILT, {"build": "env-0123", "pid": 4712}),
    _json("signal", "SIGTERM to an instance's session", Kind.SIGNAL, {"instance": "probe-1a2b", "signal": 15}),
    _json(
        "exited",
        "ended by SIGKILL",
        Kind.EXITED,
        {"instance": "probe-1a2b", "status": None, "signal": 9, "max_rss_bytes": 104857600, "cpu_s": 1.5},
    ),
    _json("forget", "drop the record", Kind.FORGET, {"instance": "probe-1a2b"}),
    _json("drain", "the node is to stop", Kind.DRAIN, {"reason": "SIGTERM", "deadline_s": 30.0}),
    _json("serving", "requests are accepted", Kind.SERVING, {"url": "http://127.0.0.1:8250", "ready": True}),
    _json(
        "zygote",
        "have a zygote",
        Kind.ZYGOTE,
        {
            "zygote": "4082143734bd-8f1ecf96f5bb",
            "argv": ["/env/bin/python", "-I"],
            "env": {"PATH": "/bin"},
            "cwd": "/",
            "limits": LIMITS,
            "sandbox": {"files": [["/env", "read"]], "python": "/env/bin/python"},
            "spares": 1,
        },
    ),
    _json("retire", "it ends with its last instance", Kind.RETIRE, {"zygote": "4082143734bd-8f1ecf96f5bb"}),
    _json(
        "zygotes",
        "one has become ready",
        Kind.ZYGOTES,
        {
            "zygote": "4082143734bd-8f1ecf96f5bb",
            "state": "ready",
            "pid": 4713,
            "reason": "",
            "import_s": 0.25,
            "threads": 1.0,
            "failed": {},
        },
    ),
    # keeper <-> zygote
    _json(
        "warm",
        "everything is imported",
        Kind.WARM,
        {"modules": ["numpy", "random"], "failed": {"nothing": "ModuleNotFoundError: nothing"}, "threads": 1, "import_s": 0.25},
    ),
    _json("unfit", "no zygote", Kind.UNFIT, {"reason": "the import of mine left 2 threads running"}),
    _json(
        "fork",
        "a runner without walls, with four descriptors",
        Kind.FORK,
        {
            "name": "probe-1a2b",
            "apart": False,
            "spare": False,
            "env": {"PATH": "/bin"},
            "cwd": "/data/scratch/probe-1a2b",
            "limits": LIMITS,
        },
    ),
    _json("forked", "with its pidfd", Kind.FORKED, {"name": "probe-1a2b"}),
    _json(
        "gone",
        "killed",
        Kind.GONE,
        {"name": "probe-1a2b", "status": None, "signal": 9, "max_rss_bytes": 1 << 20, "cpu_s": 1.5},
    ),
    _json(
        "take",
        "a spare becomes an instance",
        Kind.TAKE,
        {"name": "probe-1a2b", "plan": {"namespaces": ["mounts"]}, "env": {"PATH": "/bin"}, "cwd": "/data/scratch/probe-1a2b"},
    ),
    # one control plane takes another's place
    _json("present", "it could begin", Kind.PRESENT, {"release": "0.2.0", "wire": 1, "refused": ""}),
    _json("handover", "to the one that serves", Kind.HANDOVER, {"patience_s": 30.0}),
    _json("released", "it goes on with three requests", Kind.RELEASED, {"in_flight": 3}),
    _json("resume", "there is no successor, and why", Kind.RESUME, {"reason": "the new control plane didn't serve within 10 s"}),
    _json("succeeded", "there is one", Kind.SUCCEEDED, {}),
    _json("connection", "with a connection on which nothing is under way", Kind.CONNECTION, {}),
    _json("left", "the predecessor has ended", Kind.LEFT, {}),
    _json(
        "upgrade",
        "with a file of settings",
        Kind.UPGRADE,
        {"release": "0.2.0", "wire": 1, "argv": ["/opt/fornada/bin/python", "-I", "-m", "fornada.app.control"]},
    ),
    _json("step", "progress", Kind.STEP, {"text": "the new control plane is there"}),
    _json("done", "nothing has changed", Kind.DONE, {"failed": "the store was written by a newer release"}),
)


def dump(example: Example) -> str:
    """The golden file's text."""
    lines = [example.words]
    for number, packet in enumerate(example.packets):
        assert len(packet) <= MAX_PACKET
        lines.append(f"packet {number}")
        lines += [_line(packet, at) for at in _shown(packet)]
    return "\n".join(lines) + "\n"


def _shown(packet: bytes) -> list[int]:
    offsets = list(range(0, len(packet), 16))
    # Of a large body the first and last rows say enough; the offsets say how much lies between.
    return offsets if len(offsets) <= 200 else [*offsets[:4], *offsets[-2:]]


def _line(packet: bytes, at: int) -> str:
    row = packet[at : at + 16]
    return f"{at:08x}  {row.hex(' '):47}  {''.join(chr(byte) if 32 <= byte < 127 else '.' for byte in row)}"


def path(example: Example) -> Path:
    return FOLDER / f"{example.name}.txt"


def written(example: Example, write: Callable[[Path, str], Any] = Path.write_text) -> str:
    """What the golden file holds; with WRITES it is written first."""
    if WRITES:
        FOLDER.mkdir(exist_ok=True)
        write(path(example), dump(example))
    return path(example).read_text()
