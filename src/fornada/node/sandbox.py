"""What a model's process may see and use: its environment, its own files, its scratch, and what it asked for."""

import glob

from fornada.core.policy.memory import CPU
from fornada.core.ports import Access, Network, Provisioned, Sandbox
from fornada.core.specs import ModelSpec

COMMAND = "command"


def of_runner(spec: ModelSpec, provisioned: Provisioned, *, scratch: str, scratch_in_memory: int, device: str, shared: bool) -> Sandbox:
    """`scratch_in_memory`: its bytes; 0: it is on disk. `shared`: the process is made for others too, and no model's bounds are its own."""
    read = dict.fromkeys([provisioned.environment, provisioned.sdk, provisioned.folder, *provisioned.artifacts.values()])
    if provisioned.adapters:
        read[provisioned.adapters] = None
    # An engine of that name speaks with a server of its own, over 127.0.0.1 if that can do no better.
    reaches = bool(spec.resources.network) or spec.engine == COMMAND
    return Sandbox(
        files=[*((path, Access.READ) for path in read), (scratch, Access.WRITE), *((node, Access.USE) for node in device_nodes(device))],
        in_memory={scratch: scratch_in_memory} if scratch_in_memory else {},
        python=provisioned.python,
        network=Network.LOOPBACK if reaches else Network.NONE,
        cpus=0.0 if shared else spec.resources.cpus,
    )


def device_nodes(device: str, *, root: str = "/dev") -> list[str]:
    """What a program needs to use "cuda:N": the card and what all cards have in common. No other card's."""
    if device == CPU or not device.startswith("cuda"):
        return []
    number = device.partition(":")[2] or "0"
    wanted = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", f"nvidia{number}", "nvidia-caps/*"]
    return sorted(path for pattern in wanted for path in glob.glob(f"{root}/{pattern}"))
