"""What a runner is started with: its command, its whole environment, its bounds and its assignment."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from fornada.core.policy.memory import CPU
from fornada.core.ports import Launch, Limits, Provisioned, Version
from fornada.node import sandbox
from fornada.node.hosts import Alone, Seat

ENTRY = "import sys; sys.path.insert(0, sys.argv[1]); from fornada_sdk.runner.main import main; main()"
INHERITED_VARIABLES = (
    "TZ",
    # What the processor can do, where an operator has to say it; it changes results and speed, never what is reachable.
    "OPENBLAS_CORETYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_DEBUG_CPU_TYPE",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY",
    "NPY_DISABLE_CPU_FEATURES",
    "TF_ENABLE_ONEDNN_OPTS",
)
"""Variables of the node's own environment that runners may see; every other one stays out."""
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
FILE_BYTES_LEAST = 64 * 1024**2
SCRATCH_LEAST = 64 * 1024
"""In memory: folders and the ends of files take whole pages."""
OPEN_FILES = 1024
LIBRARY_FILES, MEMBER_FILES = 128, 10
"""Descriptors of a shared process, and of each member with one control plane more than usual."""


class Place(NamedTuple):
    """Where and as which try an instance runs."""

    instance: str
    scratch: str
    device: str
    device_kind: str
    load_attempt: int
    load_count: int


def instance_id(model: str, suffix: str) -> str:
    """The last part of the model's name, as it may stand in a directory's name, and chance: a new process is a new instance."""
    last = model.rsplit("/", 1)[-1]
    plain = "".join(character if character.isascii() and character.isalnum() else "-" for character in last)
    return f"{plain.strip('-')[:32] or 'model'}-{suffix}"


def launch(
    version: Version,
    provisioned: Provisioned,
    place: Place,
    *,
    seat: Seat | Alone,
    zygote: str,
    kin: str,
    inherited: Mapping[str, str],
    release: str,
    most_bytes: int,
    rest_after_s: float = 0.0,
    scratch_in_memory: bool = True,
    cuda_visible: str = "",
) -> Launch:
    """`inherited` is the node's own environment, or the part of it in INHERITED_VARIABLES. A Seat's process may be there
    already; if not, it is made for all that will share it. `zygote` is the one to fork it from, or empty; `kin` the one of
    its environment, for a successor. `most_bytes` is what there is of the host for all models: no process may take more.
    `rest_after_s` is node.parking's, for a process of its own. `cuda_visible` names the card that it is to compute on."""
    spec = version.spec
    shared = seat if isinstance(seat, Seat) else None
    home = shared.scratch if shared is not None else place.scratch
    # A process that others share reads what its host's shelf holds, now and later.
    readable = msgspec.structs.replace(provisioned, folder=shared.shelf, artifacts={}) if shared is not None else provisioned
    memory_bytes = min(shared.bound.memory_bytes if shared is not None else spec.resources.memory, most_bytes)
    room = spec.resources.scratch * (shared.bound.members if shared is not None else 1)
    return Launch(
        instance=place.instance,
        argv=[provisioned.python, "-I", "-B", "-c", ENTRY, provisioned.sdk],
        env=_environment(version, provisioned, inherited, home=home, memory_bytes=memory_bytes, cuda_visible=cuda_visible),
        cwd=home,
        limits=Limits(
            memory_bytes=memory_bytes,
            open_files=max(OPEN_FILES, LIBRARY_FILES + shared.bound.members * MEMBER_FILES) if shared is not None else OPEN_FILES,
            processes=spec.resources.pids if shared is None else 0,
            file_bytes=max(spec.resources.scratch, FILE_BYTES_LEAST),
        ),
        sandbox=sandbox.of_runner(
            spec,
            readable,
            scratch=home,
            scratch_in_memory=max(room, SCRATCH_LEAST) if scratch_in_memory else 0,
            device=place.device,
            shared=shared is not None,
        ),
        assignment={
            **_assignment(version, provisioned, place, release, memory_bytes=min(spec.resources.memory, most_bytes)),
            # Of all that is written to, the walls around a shared process hold its own home alone: a member's place is in there.
            "scratch": os.path.join(home, place.instance) if shared is not None else home,
            "host": shared.host if shared is not None else "",
            "rest_after_s": rest_after_s if shared is None else 0.0,
        },
        memo={
            "model": version.model,
            "version": version.digest,
            "account": version.account,
            "device": place.device,
            "load_count": place.load_count,
            **({"host": shared.host, "group": shared.group} if shared is not None else {}),
            **({"alone_because": seat.because, "kin": kin} if isinstance(seat, Alone) else {}),
        },
        host=shared.host if shared is not None else "",
        outbound=bool(spec.resources.network),
        zygote=zygote,
    )


def _environment(
    version: Version, provisioned: Provisioned, inherited: Mapping[str, str], *, home: str, memory_bytes: int, cuda_visible: str
) -> dict[str, str]:
    spec = version.spec
    cache = os.path.join(home, "cache")
    threads = str(spec.resources.threads)
    return {
        "PATH": f"{os.path.dirname(provisioned.python)}:{SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        "HOME": home,
        "TMPDIR": home,
        "XDG_CACHE_HOME": cache,
        "XDG_CONFIG_HOME": os.path.join(home, "config"),
        "XDG_DATA_HOME": os.path.join(home, "data"),
        "VIRTUAL_ENV": provisioned.environment,
        # Caches of libraries that would otherwise look for a home or a network.
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "MPLCONFIGDIR": cache,
        "NUMBA_CACHE_DIR": cache,
        "TF_CPP_MIN_LOG_LEVEL": "1",
        # Taking a whole card at the first use is nothing for a machine with many models.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        **dict.fromkeys(THREAD_VARIABLES, threads),
        "MODEL_MEMORY_BYTES": str(memory_bytes),
        **{name: inherited[name] for name in INHERITED_VARIABLES if name in inherited},
        **spec.env,
        # Where it computes is where it has a place in the book, whatever the model would rather have.
        "CUDA_VISIBLE_DEVICES": cuda_visible,
    }


def _assignment(version: Version, provisioned: Provisioned, place: Place, release: str, *, memory_bytes: int) -> dict[str, Any]:
    """fornada_sdk/runner/assignment.py says what the fields mean."""
    spec = version.spec
    return {
        "instance": place.instance,
        "model": version.model,
        "version": version.digest,
        "account": version.account,
        "engine": spec.engine,
        "folder": provisioned.folder,
        "entry": spec.python.entry,
        "artifacts": provisioned.artifacts,
        "adapters": provisioned.adapters,
        "settings": msgspec.to_builtins(spec.settings),
        "command": msgspec.to_builtins(spec.command),
        "task": spec.task,
        "resources": {"memory_bytes": memory_bytes, "threads": spec.resources.threads},
        "device": {
            "id": place.device,
            "kind": place.device_kind,
            "memory_bytes": spec.resources.device_memory if place.device != CPU else 0,
        },
        "serving": {
            "concurrency": spec.serving.concurrency,
            "max_batch": spec.serving.max_batch,
            "max_wait_ms": spec.serving.max_wait_ms,
            "max_body": spec.serving.max_body,
        },
        "load_attempt": place.load_attempt,
        "load_count": place.load_count,
        "tensors": msgspec.to_builtins(spec.tensors),
        "network": spec.resources.network,
        "example": "",
        "release": release,
    }
