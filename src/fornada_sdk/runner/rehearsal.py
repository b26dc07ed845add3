"""A zygote's last work before it forks: its children's start is played, and the code that it takes is gathered in one place.

A child copies each page that it writes to, and Python writes nearly wherever it looks: a call counts a reference of the function's
code, and a first call notes down where it has found what it needs. So a start costs a child a thousand pages and as many faults.
Code that lies together shares its pages, and what has been noted before the fork isn't noted again.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterable
from types import CodeType, FrameType, FunctionType
from typing import Any

from fornada_sdk.runner.capture import capture, end_lines
from fornada_sdk.runner.engines import python
from fornada_sdk.runner.life import Life
from fornada_sdk.runner.main import assigned, receive_first
from fornada_sdk.sandbox import plan_json
from fornada_sdk.sandbox.plan import Access, Attached, Grant, Identity, Landlock, Namespace, Plan, Root, Users
from fornada_sdk.sandbox.seccomp import Variant
from fornada_sdk.wire.channel import Channel, pair
from fornada_sdk.wire.framing import frame, frames, pack
from fornada_sdk.wire.messages import Kind, encode, invoke_head

TIMES = 12
"""Python looks at what it could note down for good at the eighth call of a function."""
MODEL = "def handle_request(request, context):\n    return request.body.json\n"
PLAN = Plan(
    namespaces=frozenset({Namespace.MOUNTS}),
    root=Root((Attached("/none", 0),)),
    identity=Identity(1, 1),
    users=Users(),
    landlock=Landlock((Grant("/none", Access.READ),)),
    seccomp=Variant.USUAL,
)
"""Read and not carried out."""
WALLS = ("fornada_sdk.sandbox.", "fornada_sdk.runner.forked")
"""Modules of what can't be played here."""
Place = tuple[str, int, str]
"""Of a function's code: file, line, name."""


def rehearse() -> None:
    """Leaves no file, descriptor, module or setting behind. What there is of objects is frozen afterwards. Raises OSError."""
    gc.collect()
    gc.freeze()  # each play ends with a collection, which has to look at its own objects alone
    streams, path, known = (sys.stdout, sys.stderr), list(sys.path), _descriptors()
    folder = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"fornada-rehearsal-{os.urandom(8).hex()}")
    entry = os.path.join(folder, python.DEFAULT_ENTRY)
    os.mkdir(folder, 0o700)
    try:
        with open(entry, "w", encoding="utf-8") as file:
            file.write(MODEL)
        gather(_places_in_a_child(folder))
        for _ in range(TIMES):
            _play(folder)
            sys.modules.pop(python.MODULE, None)
    finally:
        sys.modules.pop(python.MODULE, None)
        sys.stdout, sys.stderr = streams
        sys.path[:] = path
        with contextlib.suppress(OSError):
            os.unlink(entry)
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        # First the objects that would close theirs later, when the number may be another's; then what only numbers stood for.
        gc.unfreeze()
        gc.collect()
        for descriptor in _descriptors() - known:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        # What is here now lives as long as the process: a collection in a child would copy every page of it.
        gc.freeze()


def gather(places: Iterable[Place]) -> None:
    """Gives the functions at these places code that lies together."""
    wanted = set(places)
    moved: dict[int, CodeType] = {}
    kept: list[CodeType] = []
    for function in [found for found in gc.get_objects() if type(found) is FunctionType]:
        code = function.__code__
        if _place(code) in wanted or str(function.__module__).startswith(WALLS):
            if id(code) not in moved:
                kept.append(code)  # else its number could be another's
                moved[id(code)] = _copied(code)
            function.__code__ = moved[id(code)]


def _copied(code: CodeType) -> CodeType:
    """With the code of functions that it makes itself."""
    return code.replace(co_consts=tuple(_copied(const) if isinstance(const, CodeType) else const for const in code.co_consts))


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_firstlineno, code.co_name


def _places_in_a_child(folder: str) -> list[Place]:
    """What a fork and the play after it call. Told by a child: the first time must not be this process'."""
    seen: dict[int, CodeType] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            seen[id(frame.f_code)] = frame.f_code

    told, tell = os.pipe()
    sys.setprofile(note)
    pid = os.fork()
    if pid == 0:
        try:
            _play(folder)
        finally:
            sys.setprofile(None)
            with open(tell, "w", encoding="utf-8") as file:
                file.writelines("\0".join(map(str, _place(code))) + "\n" for code in seen.values())
            os._exit(0)
    sys.setprofile(None)
    os.close(tell)
    with open(told, encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\0") for line in file]
    os.waitpid(pid, 0)
    return [(name, int(line), function) for name, line, function in lines]


def _play(folder: str) -> None:
    """From ASSIGN to an answer and the end, in this thread alone and with both ends of the wire in this hand."""
    plan_json.load(plan_json.dump(PLAN))
    ours, theirs = pair()
    near, far = pair()
    keeper = Channel(ours, queue_bytes=1 << 20, body_bytes=1 << 20)
    keeper.send(Kind.ASSIGN, {"instance": "none", "model": "none", "engine": "python", "folder": folder, "scratch": folder})
    keeper.send(Kind.ATTACH, {"epoch": 1}, [far.detach()])
    output = capture()
    first, *others = receive_first(Channel(theirs, queue_bytes=0, body_bytes=1 << 20, descriptors=8))
    life = Life(keeper, assigned(first), output)
    for message in others:
        life.session.hear(message)
    serving = life.load()
    head = encode({"request_id": "none", "trace_id": "none", "account": "none"})
    invocation = frames(Kind.INVOKE, Kind.PART, 1, invoke_head(head, 30.0), [b'{"x": [1.0, 2.5]}'])
    for packet in (*pack(list(invocation)), *pack([frame(Kind.STOP, 0, encode({"grace_s": 0.0}))])):
        near.send(packet)
    life.serve(serving)
    end_lines()
    near.close()
    keeper.close()


def _descriptors() -> set[int]:
    return set(map(int, os.listdir("/proc/self/fd")))
