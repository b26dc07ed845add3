"""Starts a runner as the keeper does, without a keeper: two socket pairs, ASSIGN, ATTACH."""

import socket
import subprocess
import sys
import tomllib
from pathlib import Path

from fornada_sdk.wire import messages
from fornada_sdk.wire.framing import frame
from fornada_sdk.wire.messages import Kind

SDK_DIR = Path(__file__).parents[2] / "src"
MAIN = """
import os, sys
given = int(sys.argv[2])
if given != 3:  # the runner looks for its keeper there
    os.dup2(given, 3)
    os.close(given)
sys.path.insert(0, sys.argv[1])
from fornada_sdk.runner.main import main
main()
"""


def start_runner(folder: Path) -> "tuple[subprocess.Popen[bytes], socket.socket, socket.socket]":
    """A runner of the model in `folder` on this interpreter: (process, keeper's end, control plane's end).

    It lives as long as the keeper's end is open.
    """
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    front, link = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its, link:
        command = [sys.executable, "-I", "-B", "-c", MAIN, str(SDK_DIR), str(its.fileno())]
        process = subprocess.Popen(command, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        ours.send(frame(Kind.ASSIGN, 0, messages.encode(assignment(folder))))
        socket.send_fds(ours, [frame(Kind.ATTACH, 0, messages.encode({"epoch": 1}))], [link.fileno()])
    return process, ours, front


def assignment(folder: Path) -> dict[str, object]:
    """What the node would tell the runner of this model."""
    table = tomllib.loads((folder / "model.toml").read_text())
    serving = table.get("serving", {})
    return {
        "instance": "bench",
        "model": table["name"],
        "engine": table.get("engine", "python"),
        "folder": str(folder),
        "serving": {
            "concurrency": serving.get("concurrency", 1),
            "max_batch": serving.get("max_batch", 1),
            "max_wait_ms": serving.get("max_wait_ms", 0),
            **{key: serving[key] for key in ("max_body",) if key in serving},
        },
    }
