"""Opens the disk and the memory of the machine, or makes nodes for them."""

import os
import stat
from functools import partial
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "ENOENT, EPERM, EACCES"
PROVES_NOTHING = "devices are closed to an ordinary user in any case"

DISK, MEMORY = os.makedev(254, 0), os.makedev(1, 1)


def attempt(context: Context, told: Told) -> Verdict:
    def node(kind: int, device: int) -> None:
        path = Path(context.scratch) / f"node-{device}"
        os.mknod(path, kind | 0o600, device)
        os.close(os.open(path, os.O_RDONLY))

    def opened(path: str) -> None:
        os.close(os.open(path, os.O_RDONLY))

    names = ("/dev/mem", "/dev/kmem", "/dev/port", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop-control", "/dev/kvm", "/dev/fuse")
    return first_that_works(
        {
            **{name: partial(opened, name) for name in names},
            "mknod block": lambda: node(stat.S_IFBLK, DISK),
            "mknod character": lambda: node(stat.S_IFCHR, MEMORY),
        }
    )
