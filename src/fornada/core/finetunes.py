"""Fine-tunes: adapters (LoRA) that accounts hand in for a model, and what has to be true of their files. Values, checks and ports."""

import hashlib
import math
from collections.abc import Mapping
from typing import Any, NewType, Protocol

import msgspec

from fornada.core.errors import BadRequest
from fornada.core.names import AccountId, ModelName
from fornada.core.ports import Version
from fornada.core.specs import ModelSpec

FinetuneId = NewType("FinetuneId", str)

ENGINES = ("gguf",)
LIBRARIES = frozenset({"xllamacpp"})
"""What such an engine needs in its environment, and nothing else."""
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FILES = (CONFIG, WEIGHTS)
LONGEST_NAME, LONGEST_DESCRIPTION = 128, 2048
MODEL_TYPES = ("mistral", "gemma", "llama")
"""WORKERS_AI.md, 9. PEFT writes no `model_type` by itself: a file without one is taken."""
_LONGEST_CONFIG = 1024 * 1024
_LONGEST_HEADER = 16 * 1024 * 1024
"""Bytes; safetensors' own bound is 100 MB, and an adapter has some hundred tensors of a hundred bytes of description each."""
_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "I64": 64, "I32": 32, "I16": 16, "I8": 8,
    "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8,
}  # fmt: skip


class Finetune(msgspec.Struct, frozen=True):
    """An adapter, whether its files are there or not."""

    id: FinetuneId
    account: AccountId
    model: ModelName
    """Whose weights it changes: as the catalogue calls it, where that knew the name."""
    name: str
    description: str
    public: bool
    """Every account of the node may use it."""
    created: float
    """Seconds since 1970."""
    modified: float


def base_folder(model: str) -> str:
    """Name of the folder, below DATA_DIR/finetunes, of all adapters of a model: each has one in it, named by its id."""
    return hashlib.sha256(model.encode()).hexdigest()[:32]


def applies_adapters(spec: ModelSpec) -> bool:
    """Whether the model applies adapters: an engine does that can, alone, and the task's own schema checks its inputs, so that `lora` is what
    it says."""
    return spec.engine in ENGINES and spec.task == "text-generation" and not spec.schema.input and not spec.python.entry


def shows_adapters(version: Version) -> bool:
    """Whether its process may see all adapters of the model, whosever they are: where nothing runs but the engine and its library. What
    another account brought along could read them."""
    packages = {line.partition("==")[0].strip() for line in version.lock.splitlines() if line[:1].isalnum()}
    return applies_adapters(version.spec) and (version.builtin or packages <= LIBRARIES)


class FinetuneStore(Protocol):
    """Rows on disk. Every call may raise DiskFull; InternalFault where the disk fails otherwise."""

    def put_finetune(self, finetune: Finetune) -> None:
        """A new one, or when one was last modified: nothing else of it changes. On disk when it returns."""

    def finetune(self, id: FinetuneId) -> Finetune | None: ...

    def finetunes(self, account: AccountId) -> list[Finetune]:
        """The newest first."""

    def public_finetunes(self) -> list[Finetune]:
        """Of all accounts, the newest first."""

    def finetune_ids(self) -> set[FinetuneId]:
        """All."""

    def remove_finetune(self, id: FinetuneId) -> None: ...


class AdapterFiles(Protocol):
    """The adapters' files, each there whole or not at all."""

    async def keep(self, finetune: Finetune, file: str, data: bytes | memoryview) -> None:
        """On disk when it returns, in the place of one that was there. Raises DiskFull."""

    def complete(self, finetune: Finetune) -> bool:
        """Whether all FILES are there."""

    async def drop(self, finetune: Finetune) -> None: ...

    async def folders(self) -> dict[FinetuneId, str]:
        """Those that nothing has been written to for long, with their places."""

    async def sweep(self, folders: Mapping[FinetuneId, str]) -> None:
        """Removes these, and what kills left of uploads."""


class FinetunesPort(Protocol):
    """What belongs to another account isn't there, unless it is public."""

    @property
    def most_bytes(self) -> int:
        """Of one file."""

    def create(self, account: AccountId, *, model: ModelName, name: str, description: str, public: bool) -> Finetune:
        """Raises BadRequest, TooManyFinetunes, DiskFull."""

    def all(self, account: AccountId) -> list[Finetune]:
        """The account's own, the newest first."""

    def public(self) -> list[Finetune]: ...

    async def upload(self, id: FinetuneId, account: AccountId, *, file: str, data: bytes | memoryview) -> Finetune:
        """Checks and keeps one of the FILES. Raises UnknownFinetune, BadRequest, TooLarge, DiskFull."""

    async def remove(self, id: FinetuneId, account: AccountId) -> None:
        """Raises UnknownFinetune."""

    def find(self, account: AccountId, named: str) -> Finetune:
        """By id, else the account's newest of that name, else the oldest public one: nobody can push in front of a name that others use.
        All its files are there. Raises UnknownFinetune, FinetuneIncomplete."""


def check_file(file: str, data: bytes | memoryview, *, most_rank: int) -> None:
    """Whether an uploaded file can be a part of an adapter. Nothing of the weights is read but their description. Raises BadRequest."""
    if file == CONFIG:
        _check_config(data, most_rank)
    elif file == WEIGHTS:
        _check_weights(data, most_rank)
    else:
        raise BadRequest(f"'/file_name' must be {CONFIG} or {WEIGHTS}")


def _check_config(data: bytes | memoryview, most_rank: int) -> None:
    if len(data) > _LONGEST_CONFIG:
        raise BadRequest(f"{CONFIG} is longer than {_LONGEST_CONFIG} bytes")
    try:
        config = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        raise BadRequest(f"{CONFIG} is no JSON object") from None
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        raise BadRequest(f"{CONFIG}: 'peft_type' must be LORA")
    rank = config.get("r")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= most_rank:
        raise BadRequest(f"{CONFIG}: 'r' must be a whole number from 1 to {most_rank}")
    model_type = config.get("model_type")
    if model_type is not None and model_type not in MODEL_TYPES:
        raise BadRequest(f"{CONFIG}: 'model_type' must be one of {', '.join(MODEL_TYPES)}")


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def _check_weights(data: bytes | memoryview, most_rank: int) -> None:
    """https://github.com/huggingface/safetensors, "Format": a length, a JSON object of that length, and the tensors without a gap."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > _LONGEST_HEADER or length > len(data) - 8:
        raise BadRequest(f"{WEIGHTS} is no safetensors file: its header doesn't fit")
    try:
        described = msgspec.json.decode(memoryview(data)[8 : 8 + length], type=dict[str, msgspec.Raw])
        described.pop("__metadata__", None)
        tensors = {name: msgspec.json.decode(raw, type=_Tensor) for name, raw in described.items()}
    except (msgspec.MsgspecError, RecursionError):
        raise BadRequest(f"{WEIGHTS} is no safetensors file: its header is no description of tensors") from None
    at = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
        first, last = tensor.data_offsets
        bits = _BITS.get(tensor.dtype)
        if bits is None or any(size < 0 for size in tensor.shape):
            raise BadRequest(f"{WEIGHTS}: '{name[:100]}' has a type or a shape that can't be")
        if first != at or last - first != math.prod(tensor.shape) * bits // 8:
            raise BadRequest(f"{WEIGHTS}: '{name[:100]}' doesn't lie where its shape says")
        at = last
        if "lora_A" in name and tensor.shape and tensor.shape[0] > most_rank:
            raise BadRequest(f"{WEIGHTS}: '{name[:100]}' has rank {tensor.shape[0]}, {most_rank} is the most")
    if at != len(data) - 8 - length:
        raise BadRequest(f"{WEIGHTS} doesn't end where its last tensor does")
    if not any("lora_A" in name for name in tensors):
        raise BadRequest(f"{WEIGHTS} holds no adapter: none of its tensors is a 'lora_A'")
