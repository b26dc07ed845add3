"""Whoever reads the wire is missed at once: a runner that hears nothing any more must not stand there as if it were ready."""

import contextlib
import threading

import pytest

from tests.bounds import bound
from tests.unit.sdk.driver import Plane, Start

MODEL = """
    import resource, time
    def work(keys, context):
        if "leave_mib" in keys:
            with open("/proc/self/status") as file:
                (used,) = [int(line.split()[1]) for line in file if line.startswith("VmData")]
            most = (used + keys["leave_mib"] * 1024) * 1024
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
            print("tight")
        end = time.monotonic() + keys.get("s", 0)
        while time.monotonic() < end and not context.cancelled:
            time.sleep(0.01)
        return {}
"""
ON_A_LOOP = (
    MODEL
    + """
    async def handle_request(request, context):
        return work(request.body.json, context)
"""
)
INLINE = (
    MODEL
    + """
    def handle_request(request, context):
        return work(request.body.json, context)
"""
)


def send(plane: Plane) -> None:
    with contextlib.suppress(OSError):
        plane.invoke(raw=b"x" * 40_000_000)


@pytest.mark.parametrize(
    ("code", "keys"),
    [
        pytest.param(ON_A_LOOP, {"leave_mib": 16}, id="the loop's reader"),
        pytest.param(INLINE, {"leave_mib": 16, "s": 60}, id="the standby"),
        pytest.param(INLINE, {"leave_mib": 16}, id="the main thread"),
    ],
)
def test_a_request_too_large_for_what_memory_is_left_ends_the_process_instead_of_its_reading(start: Start, code: str, keys: dict):
    runner = start(code)
    plane = runner.attach()
    plane.ready()
    plane.invoke(keys)
    runner.wait_line(lambda line: "tight" in line)
    sending = threading.Thread(target=send, args=(plane,))  # a runner that reads no more would hold it up for good
    sending.start()
    assert runner.exit_code() > 0
    sending.join(bound(5))
    runner.wait_line(lambda line: "MemoryError" in line)
