"""Resource limits of one child."""

from __future__ import annotations

import os
import resource

from fornada_sdk.sandbox.plan import Limits


def apply(limits: Limits) -> None:
    """Never raises a limit beyond the hard one that is there."""
    _bound(resource.RLIMIT_CORE, limits.core_bytes)
    for which, value in (
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NPROC, limits.processes),
        # Not RLIMIT_AS: CUDA and TensorFlow reserve address space far beyond what they use.
        (resource.RLIMIT_DATA, limits.memory_bytes),
    ):
        if value:
            _bound(which, value)
    if limits.nice:
        os.nice(limits.nice)


def _bound(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))
