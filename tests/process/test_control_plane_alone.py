"""The real control plane, with a keeper's end that the test holds."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fornada.core.settings import Settings
from fornada_sdk.wire.channel import Channel, pair
from fornada_sdk.wire.framing import split
from fornada_sdk.wire.messages import Kind
from tests.bounds import bound

WELCOME = {"epoch": 1, "keeper_pid": 2, "main_pid": 1, "control_pid": 5, "listeners": 1, "instances": 0, "ended": 0, "builds": []}


@pytest.mark.parametrize("nonsense", [b"this is no message", b""], ids=["it speaks another language", "it has gone"])
def test_a_control_plane_that_lost_its_keeper_ends_in_one_line(nonsense: bytes, tmp_path: Path):
    (tmp_path / "run").mkdir()
    settings = os.memfd_create("settings")
    os.write(settings, msgspec.json.encode(Settings(data_dir=str(tmp_path))))
    ours, theirs = pair()
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as listener:
        descriptors = {"FORNADA_KEEPER_FD": str(theirs.fileno()), "FORNADA_SETTINGS_FD": str(settings)}
        control = subprocess.Popen(
            [sys.executable, "-m", "fornada.app.control"],
            env={**os.environ, **descriptors},
            pass_fds=[theirs.fileno(), settings],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        theirs.close()
        os.close(settings)
        try:
            channel = Channel(ours, queue_bytes=1 << 20, body_bytes=1 << 20)
            channel.send(Kind.WELCOME, WELCOME, [os.dup(listener.fileno())])
            ours.settimeout(bound(20))
            while (packet := ours.recv(65536)) and [kind for kind, *_ in split(packet)] != [Kind.SERVING]:
                pass
            assert packet, "it serves"
            ours.send(nonsense) if nonsense else ours.shutdown(socket.SHUT_RDWR)
            _, said = control.communicate(timeout=bound(5))
        finally:
            control.kill()
            control.wait()
    assert control.returncode == 1, said
    (line,) = [line for line in said.splitlines() if not line.startswith("{")]
    assert line.startswith("fornada: the control plane") and "can't go on: the keeper" in line
