"""run/node.json where it can and where it can't be written."""

import asyncio
import json
import resource

from fornada.app.node_file import RETRY_S, NodeFile
from fornada.telemetry import Telemetry
from tests.loops.virtual import VirtualClock, virtual


class NoRoom:
    """The disk takes no byte, as it is with a full one: a file can be made, and not be written to."""

    def __enter__(self) -> None:
        self.was = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, self.was[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.was)


@virtual
async def test_a_node_without_room_for_its_file_serves_and_writes_it_once_there_is(tmp_path):
    telemetry = Telemetry(clock=VirtualClock(), data_dir=tmp_path, log_bytes=1 << 20)
    path = tmp_path / "run" / "node.json"
    path.parent.mkdir()
    file = NodeFile(path, {"url": "http://x"}, log=telemetry.log, loop=asyncio.get_running_loop())
    with NoRoom():
        file.write()
        assert list(path.parent.iterdir()) == [], "half a file is removed"
        await asyncio.sleep(3 * RETRY_S)
        assert list(path.parent.iterdir()) == []
    await asyncio.sleep(RETRY_S)
    assert json.loads(path.read_text()) == {"url": "http://x"}
    assert [entry.name for entry in path.parent.iterdir()] == ["node.json"]
    telemetry.close()


@virtual
async def test_a_file_that_is_a_successors_by_now_is_left_alone(tmp_path):
    telemetry = Telemetry(clock=VirtualClock(), data_dir=tmp_path, log_bytes=1 << 20)
    path = tmp_path / "run" / "node.json"
    path.parent.mkdir()
    file = NodeFile(path, {"url": "http://x"}, log=telemetry.log, loop=asyncio.get_running_loop())
    with NoRoom():
        file.write()
    file.close()
    await asyncio.sleep(3 * RETRY_S)
    assert not path.exists()
    telemetry.close()
