"""The keeper's end of a process that several instances share."""

import os
import select
import textwrap
import time
from pathlib import Path
from typing import Any

from fornada_sdk.wire.channel import Channel, ChannelClosed, ChannelLeft, pair
from fornada_sdk.wire.messages import Kind
from tests.bounds import bound
from tests.unit.sdk.driver import Plane, Runner

ECHO = """
    import os
    def handle_request(request, context):
        value = request.body.json
        print("got", value["x"])
        return {"x": value["x"], "pid": context.pid, "model": NAME}
"""


class Joined:
    """One member: the keeper's channel to it, its output and its control planes."""

    def __init__(self, host: "SharedProcess", name: str, folder: Path, **assignment: Any) -> None:
        ours, theirs = pair()
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        self._said = b""
        self.channel = Channel(ours, queue_bytes=1 << 20, body_bytes=0)
        given = {"instance": name, "model": f"@test/{name}", "engine": "python", "folder": str(folder), "release": "0", "host": "h"}
        host.runner.keeper.send(Kind.JOIN, {**given, **assignment}, [theirs.detach(), write])
        self._planes: list[Plane] = []

    def attach(self) -> Plane:
        ours, theirs = pair()
        self._planes.append(Plane(ours, len(self._planes) + 1))
        self.channel.send(Kind.ATTACH, {"epoch": len(self._planes)}, [theirs.detach()])
        return self._planes[-1]

    @property
    def output(self) -> str:
        while True:
            try:
                piece = os.read(self._read, 65536)
            except BlockingIOError:
                break
            if not piece:
                break
            self._said += piece
        return self._said.decode()

    def until_output(self, text: str, seconds: float = 10.0) -> None:
        end = time.monotonic() + bound(seconds)
        while text not in self.output:
            assert time.monotonic() < end, f"'{text}' isn't in {self.output!r}"
            time.sleep(0.005)

    def how_it_went(self, seconds: float = 10.0) -> str:
        """`left` or `lost`, as the keeper sees it; the keeper then lets go too."""
        assert select.select([self.channel], [], [], bound(seconds))[0], "the member is still there"
        try:
            self.channel.hear_nothing()
        except ChannelLeft:
            how = "left"
        except ChannelClosed:
            how = "lost"
        self.channel.close()
        return how

    def stays(self) -> bool:
        return not select.select([self.channel], [], [], 0)[0]

    def close(self) -> None:
        for plane in self._planes:
            plane.close()
        self.channel.close()
        os.close(self._read)


class SharedProcess:
    """A host, and its members by name."""

    def __init__(self, runner: Runner, folder: Path) -> None:
        self.runner = runner
        self._folder = folder
        self.members: dict[str, Joined] = {}

    def join(self, name: str, code: str = ECHO, **assignment: Any) -> Joined:
        folder = self._folder / name
        folder.mkdir()
        (folder / "model.py").write_text(f"NAME = {name!r}\n" + textwrap.dedent(code))
        member = self.members[name] = Joined(self, name, folder, **assignment)
        return member

    def ready(self, name: str, code: str = ECHO, **assignment: Any) -> tuple[Joined, Plane]:
        """A member that serves, and a control plane of it."""
        member = self.join(name, code, **assignment)
        plane = member.attach()
        plane.ready()
        return member, plane

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.runner.pid}/fd"))

    def until_descriptors(self, most: int, seconds: float = 5.0) -> None:
        end = time.monotonic() + bound(seconds)
        while self.descriptors() > most:
            assert time.monotonic() < end, f"{self.descriptors()} descriptors are open, expected {most}"
            time.sleep(0.01)

    def close(self) -> None:
        for member in self.members.values():
            member.close()
