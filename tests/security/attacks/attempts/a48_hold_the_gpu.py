"""Takes device memory and leaves a process behind that would go on holding it."""

from fornada_sdk import Context
from tests.security.attacks.attempts import a35_daemon
from tests.security.attacks.verdict import Told, Verdict

WALL = "the device is free when the last process has gone, and none is left"
SEEN_OUTSIDE = True
OUTLIVES = True
RESOURCES = {"device": "cuda:0", "device_memory": "64MiB"}


def attempt(context: Context, told: Told) -> Verdict:
    context.device.allocate(32 * 1024 * 1024, release_delay_s=0)
    return a35_daemon.attempt(context, told)
