"""The closed set of messages between control plane, keeper and runner.

Five conversations, each on SEQPACKET sockets:

    control plane <-> runner   requests, answers, streams, life (one socket pair for each control plane that attaches)
    keeper        ->  runner   ASSIGN or JOIN (what to run), ATTACH (a socket to a control plane, as SCM_RIGHTS), STOP
    keeper       <->  zygote   WARM, FORK, FORKED, GONE; and TAKE to a runner that was forked ahead of need
    control plane <-> keeper   WELCOME, SPAWN, BUILD, SIGNAL, EXITED ... (JSON, some with descriptors)
    command       <-> keeper   UPGRADE, STEP, DONE

A sixth has no Kinds, and a model may write on it what it likes: connections to hosts, wished for in wire/outbound.py.

Heads are JSON objects in UTF-8: they are small, and both ends have a fast reader in their standard library. Bodies are
raw bytes and are never looked at here. Each message has a golden file in tests/contract/golden: an encoding that
changes by accident fails there, and a change on purpose raises WIRE_VERSION.
"""

import enum
import json
import struct
from typing import Any

WIRE_VERSION = 1

INVOKE_PREFIX = struct.Struct("<If")  # bytes of the head, seconds left until the deadline
HEAD_PREFIX = struct.Struct("<I")  # bytes of the head
_JSON = json.JSONDecoder()
CREDIT_BODY = struct.Struct("<I")  # bytes of a stream that the reader has taken

STREAM_WINDOW = 262144
"""Bytes of one stream's items that a runner may have sent beyond what CREDIT gave back: the bound of what a slow reader costs."""

INPUT_WINDOW = 262144
"""Bytes of one caller's messages that a runner may be sent beyond what TAKEN gave back. From half of it on one of any size goes."""
INPUT_COST = 64
"""Bytes that each message counts for beside what is in it: an empty one takes memory, too."""
TEXT, BYTES = 1, 2
"""What an INPUT is."""
TAKEN_BODY = struct.Struct("<I")


class Kind(enum.IntEnum):
    """Every message; the comment says who sends it and what the payload is."""

    # runner -> control plane
    # HELLO comes first and once: JSON wire, release, instance, pid, state (loading|ready|falling|asleep|waking|failed|stopping),
    # in_flight: the ids whose ANSWER or END is still to come on this channel, booked: {device: bytes} if any, arenas: true where it
    # knows ARENA, TRIM and STORED, and progress, or READY's or FAILED's fields
    HELLO = 1
    PROGRESS = 2  # JSON: phase (loading|warming), text, fraction (0..1 or null)
    READY = 3  # JSON: load_s, warmup_s, streaming, tensors: {inputs, outputs}, pipelining: requests that may be under way at once,
    # sleeps: true where it can
    FAILED = 4  # JSON: reason, kind (load|warmup|memory), detail
    # u32 + head JSON + body; head {} means status ok, type application/json. STORED: instead of the body where it lies, as in INVOKE
    ANSWER = 5
    STREAM = 6  # u32 + head JSON: a stream begins; ITEMs and one END follow
    ITEM = 7  # bytes of one item; part = number of the item from 0
    END = 8  # JSON: status ok, or an ANSWER's error head
    BOOK = 9  # JSON: device, bytes, release_delay_s if any; id names the call
    SLEPT = 10  # JSON: sleep_s, or failed: why it is no use any more. What was booked is given back with it
    WOKEN = 11  # JSON: wake_s, or failed; what had been booked has been booked again
    # u32: model code listens to what the caller of a conversation says (INVOKE's head has messages), and has taken so many bytes of it,
    # INPUT_COST for each message among them
    TAKEN = 12
    # control plane -> runner
    INVOKE = 16  # u32, f32 + head JSON + body
    CANCEL = 17  # empty: the caller has gone; stop when you can
    ACK = 18  # u64 ids: these answers have arrived and may be forgotten
    CREDIT = 19  # u32: bytes of the stream that were taken
    STOP = 20  # JSON: grace_s: how long what runs may go on before it is cancelled. Also from the keeper, to a member of a host
    BOOKED = 21  # JSON: ok, message; id as in BOOK
    SLEEP = 23  # JSON: {}: give the device's memory back. Nothing is under way then; answered by SLEPT
    WAKE = 24  # JSON: {}: take it again; answered by WOKEN
    INPUT = 25  # u8 + bytes: one message of a conversation's caller, TEXT or BYTES. Only after a TAKEN, and no more than INPUT_WINDOW
    TRIM = 22  # empty: the memory of the answers' file in which no answer lies is to go back to the kernel
    # both ways
    # JSON. To the runner: {} says that the next packet brings descriptors, and {requests: bytes} or {answers: bytes} in that packet which
    # file its one is (wire/arena.py). From the runner: {requests: bytes}: it has it, so that INVOKE may be STORED
    ARENA = 31
    PART = 32  # bytes: the next part of the body that id has open
    # keeper -> runner
    ASSIGN = 48  # JSON: see Assignment in fornada_sdk/runner/assignment.py; descriptor: the outbound channel, where it names hosts
    ATTACH = 49  # JSON: epoch; one descriptor
    # One more instance for a process that several share, in ASSIGN's fields; descriptors: the far end of the channel that this member
    # has with the keeper (ATTACH and STOP come on it), the write end of its output. A process that begins with it is a host
    JOIN = 50
    # control plane <-> keeper
    # WELCOME comes first: JSON epoch, keeper_pid, main_pid, control_pid, listeners (how many: they are its descriptors),
    # instances and ended (how many SPAWNED and how many EXITED follow at once), builds: [{build, pid}], predecessor: it is there still
    WELCOME = 64  # keeper
    # host, if any: the name of a process that this instance shares with all that name it. The first one's command and bounds make it;
    # for the keeper a host is never full: who orders counts, and names another. zygote, if any: the name of the one that is to fork it;
    # where that can't, argv is executed
    SPAWN = 65  # control plane: JSON instance, argv, env, cwd, limits, assignment, memo, host, outbound: it gets an outbound channel
    # keeper: JSON instance, pid, memo, outbound, start (exec|fork|spare); descriptors: link, output, the outbound channel's far end, if so
    SPAWNED = 66
    REFUSED = 67  # keeper: JSON instance or build, reason
    BUILD = 68  # control plane: JSON build, argv, env, cwd, limits, log
    BUILT = 69  # keeper: JSON build, pid (it has started)
    SIGNAL = 70  # control plane: JSON instance or build, signal
    # over_memory: it was ended for that; with_host: the process that it shared ended, and status and signal are that one's
    EXITED = (
        71  # keeper: JSON instance or build, status (exit code or null), signal (or null), max_rss_bytes, cpu_s, over_memory, with_host
    )
    FORGET = 72  # control plane: JSON instance or build: its end is known, drop the record
    DRAIN = 73  # keeper: JSON reason, deadline_s: the node is to stop
    SERVING = 74  # control plane: JSON url, ready: it accepts requests
    # have a zygote of that name, with so many parked spares; one that has become unfit is succeeded
    ZYGOTE = 75  # control plane: JSON zygote, argv, env, cwd, limits, sandbox, spares
    RETIRE = 76  # control plane: JSON zygote: it ends with its last instance
    # keeper: JSON zygote, state (importing|ready|unfit|ended), pid, reason, and once it is ready import_s, threads, failed: {module: why}
    ZYGOTES = 77
    # keeper <-> zygote
    WARM = 80  # zygote: JSON modules, failed: {module: why}, threads, import_s: it forks from now on
    UNFIT = 81  # zygote: JSON reason: what it has imported leaves threads, which no child would have
    # keeper: JSON name, apart, env, cwd, and plan (fornada_sdk/sandbox/plan_json.py) or, if it isn't apart, limits; spare, if it is to
    # wait for TAKE. Descriptors: /dev/null, output, the runner's channel, its report, and those that the plan counts
    FORK = 82
    FORKED = 83  # zygote: JSON name; its pidfd. Or JSON name, reason, and no descriptor
    GONE = 84  # zygote: JSON name, status (exit code or null), signal (or null), max_rss_bytes, cpu_s: it has been reaped
    # keeper, to a spare on its own channel: JSON name, plan, env, cwd; assign is ASSIGN's object, whose `near` descriptors come behind
    # those that the plan counts; without it ASSIGN follows
    TAKE = 85
    # control plane <-> keeper, while one takes another's place
    PRESENT = 96  # control plane: JSON release, wire, refused: it could begin, or why it won't. Comes first; WELCOME is the answer
    HANDOVER = 97  # keeper, to the one that serves: JSON patience_s: let go of everything, in a moment at which nothing is half done
    RELEASED = 98  # control plane: JSON in_flight (how many requests it goes on with), or refused: why there was no such moment
    RESUME = 99  # keeper: JSON reason: there is no successor, serve on
    SUCCEEDED = 100  # keeper: {}: the successor serves: give it the connections that rest, and end when the others are answered
    CONNECTION = 101  # control plane, and on to its successor: {}; descriptor: a TCP connection on which nothing is under way
    LEFT = 102  # keeper: {}: nobody but you is attached to runners any more
    # command <-> keeper
    UPGRADE = 104  # command: JSON release, wire, argv; descriptor: a file with the settings
    STEP = 105  # keeper: JSON text
    DONE = 106  # keeper: JSON failed: empty, or why nothing has changed


OK_HEAD = b"{}"


def encode(payload: dict[str, Any]) -> bytes:
    """A head as JSON bytes."""
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()


def decode(payload: "bytes | bytearray | memoryview") -> dict[str, Any]:
    """A head from JSON bytes. Raises ValueError where it is no JSON object."""
    # The way to the scanner without the expressions that look for white space at both ends: a start decodes three of these.
    text = str(payload, "utf-8").strip(" \t\r\n")
    value, end = _JSON.raw_decode(text)
    if end != len(text):
        raise ValueError(f"something follows the JSON object, from character {end} on")
    if not isinstance(value, dict):
        raise ValueError("a head must be a JSON object")
    return value


def with_head(head: bytes) -> bytes:
    """What stands before an ANSWER's or a STREAM's body."""
    return HEAD_PREFIX.pack(len(head)) + head


def split_head(payload: "bytes | memoryview") -> "tuple[bytes, memoryview]":
    """(head, body) of an ANSWER or a STREAM. Raises ValueError for a head longer than the payload."""
    view = memoryview(payload)
    if len(view) < HEAD_PREFIX.size:
        raise ValueError("a payload too short for a head")
    (size,) = HEAD_PREFIX.unpack_from(view)
    end = HEAD_PREFIX.size + size
    if end > len(view):
        raise ValueError(f"a head of {size} bytes in a payload of {len(view)}")
    return bytes(view[HEAD_PREFIX.size : end]), view[end:]


def invoke_head(head: bytes, left_s: float) -> bytes:
    """What stands before an INVOKE's body; `left_s` are the seconds until the request's deadline."""
    return INVOKE_PREFIX.pack(len(head), left_s) + head
