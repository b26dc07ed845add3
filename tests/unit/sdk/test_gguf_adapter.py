"""LoRA adapters: from PEFT's files to GGUF's, and into llama.cpp when a request asks for one."""

import json
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada_sdk.api import BadRequest
from fornada_sdk.runner.engines import LoadError
from fornada_sdk.runner.engines import gguf_weights as module
from fornada_sdk.runner.engines.gguf_adapter import CONFIG, WEIGHTS, AdapterError, Base, convert, rows_for_gguf
from fornada_sdk.runner.engines.gguf_header import Header, read_header
from fornada_sdk.runner.engines.gguf_weights import Lent, Weights
from tests.bounds import bound

LLAMA = Header("llama", 2048, "", heads=2, kv_heads=1)
GEMMA = LLAMA._replace(architecture="gemma")
LAYER = "base_model.model.model.layers.0."
SHAPES = {
    **{f"blk.0.{name}.weight": (2, 8) for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_down", "ffn_gate")},
    "blk.0.ffn_up.weight": (2, 8),
}
BASE = Base(LLAMA, SHAPES)
Tensors = dict[str, tuple[str, list[int], bytes]]


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def pair(module: str, *, rank: int = 1, inner: int = 2, out: int = 8) -> Tensors:
    return {
        f"{LAYER}{module}.lora_A.weight": ("F32", [rank, inner], floats(*range(rank * inner))),
        f"{LAYER}{module}.lora_B.weight": ("F32", [out, rank], floats(*range(out * rank))),
    }


def adapter(folder: Path, tensors: Tensors, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    header, blob = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps({**header, "__metadata__": {"format": "pt"}}).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + blob)
    (folder / CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": 1, "lora_alpha": 16, **config}))
    return folder


def converted(folder: Path, base: Base = BASE) -> tuple[dict[str, Any], dict[str, tuple[list[int], int, bytes]]]:
    """(entries, name -> (shape as PyTorch has it, type, bytes)) of the GGUF file, read by the letter of its format."""
    target = folder / "made.gguf"
    convert(str(folder), str(target), base)
    data = target.read_bytes()
    at = 0

    def take(format: str) -> Any:
        nonlocal at
        (value,) = struct.unpack_from("<" + format, data, at)
        at += struct.calcsize("<" + format)
        return value

    def text() -> str:
        nonlocal at
        size = take("Q")
        at += size
        return data[at - size : at].decode()

    assert data[:8] == b"GGUF\3\0\0\0"
    at = 8
    count, said = take("Q"), take("Q")
    entries: dict[str, Any] = {}
    for _ in range(said):
        key = text()
        entries[key] = text() if take("I") == 8 else take("f")
    described = []
    for _ in range(count):
        name = text()
        shape = [take("Q") for _ in range(take("I"))][::-1]
        described.append((name, shape, take("I"), take("Q")))
    at += -at % 32
    sizes = {0: 4, 1: 2}
    found = {
        name: (shape, kind, data[at + offset : at + offset + shape[0] * shape[1] * sizes[kind]]) for name, shape, kind, offset in described
    }
    assert all(offset % 32 == 0 for *_, offset in described)
    return entries, found


def test_tensors_keep_their_bytes_under_gguf_s_names(tmp_path: Path) -> None:
    given = {**pair("self_attn.v_proj"), **pair("mlp.down_proj", rank=2), **pair("self_attn.o_proj")}
    entries, found = converted(adapter(tmp_path, given))
    assert entries == {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora", "adapter.lora.alpha": 16.0}
    assert found["blk.0.ffn_down.weight.lora_a"] == ([2, 2], 0, floats(0, 1, 2, 3))
    assert found["blk.0.ffn_down.weight.lora_b"] == ([8, 2], 0, floats(*range(16)))
    assert found.keys() == {f"blk.0.{name}.weight.lora_{side}" for name in ("attn_v", "ffn_down", "attn_output") for side in "ab"}
    assert read_header(str(tmp_path / "made.gguf")).architecture == "llama"


def test_what_rotates_together_lies_beside_each_other_in_llama_s_queries_and_keys(tmp_path: Path) -> None:
    folder = adapter(tmp_path, {**pair("self_attn.q_proj"), **pair("self_attn.k_proj")})
    _, found = converted(folder)
    # 8 rows, two heads of queries: within a head of 4, PyTorch turns rows i and i+2 together, GGUF rows 2i and 2i+1.
    assert found["blk.0.attn_q.weight.lora_b"][2] == floats(0, 2, 1, 3, 4, 6, 5, 7)
    assert found["blk.0.attn_k.weight.lora_b"][2] == floats(0, 4, 1, 5, 2, 6, 3, 7)
    assert found["blk.0.attn_q.weight.lora_a"][2] == floats(0, 1)
    assert converted(folder, Base(GEMMA, SHAPES))[1]["blk.0.attn_q.weight.lora_b"][2] == floats(*range(8)), "gemma's stay where they are"


@given(heads=st.integers(1, 4), half=st.integers(1, 4), columns=st.integers(1, 3))
def test_each_row_goes_to_one_place(heads: int, half: int, columns: int) -> None:
    rows = heads * half * 2
    before = [struct.pack("<I", row) * columns for row in range(rows)]
    data = rows_for_gguf(b"".join(before), heads, rows)
    after = [data[at : at + 4 * columns] for at in range(0, len(data), 4 * columns)]
    assert sorted(after) == sorted(before)
    for head in range(heads):
        for i in range(half):
            place = head * half * 2
            assert (after[place + 2 * i], after[place + 2 * i + 1]) == (before[place + i], before[place + i + half])


def test_half_precision_stays_and_bfloat16_becomes_float32(tmp_path: Path) -> None:
    values = (1.5, -2.0)
    half = struct.pack("<2e", *values)
    brain = b"".join(struct.pack("<f", value)[2:] for value in values)
    tensors: Tensors = {
        f"{LAYER}mlp.up_proj.lora_A.weight": ("F16", [1, 2], half),
        f"{LAYER}mlp.up_proj.lora_B.weight": ("BF16", [2, 1], brain),
    }
    _, found = converted(adapter(tmp_path, tensors), Base(LLAMA, {"blk.0.ffn_up.weight": (2, 2)}))
    assert found["blk.0.ffn_up.weight.lora_a"] == ([1, 2], 1, half)
    assert found["blk.0.ffn_up.weight.lora_b"] == ([2, 1], 0, floats(*values))


def test_a_rank_stabilised_adapter_keeps_its_scale(tmp_path: Path) -> None:
    entries, _ = converted(adapter(tmp_path, pair("mlp.up_proj", rank=4), use_rslora=True))
    assert entries["adapter.lora.alpha"] / 4 == 16 / 4**0.5


@pytest.mark.parametrize(
    ("tensors", "config", "why"),
    [
        ({}, {}, "no tensors"),
        (pair("self_attn.q_proj", out=6), {"r": 1}, "share evenly"),
        (pair("self_attn.qkv_proj"), {}, "can't be changed"),
        ({"base_model.model.model.embed_tokens.lora_embedding_A": ("F32", [1, 1], floats(1))}, {}, "can't be changed"),
        ({f"{LAYER}mlp.up_proj.lora_A.weight": ("F32", [1, 2], floats(1, 2))}, {}, "other half"),
        ({f"{LAYER}mlp.up_proj.lora_A.weight": ("I8", [1, 2], b"ab")}, {}, "I8"),
        ({f"{LAYER}mlp.up_proj.lora_A.weight": ("F32", [2], floats(1, 2))}, {}, "shape"),
        ({f"{LAYER}mlp.up_proj.lora_A.weight": ("F32", [1, 3], floats(1, 2))}, {}, "doesn't lie"),
        (pair("mlp.up_proj", rank=257), {}, "rank"),
        (pair("mlp.up_proj", out=4), {}, "4 x 2.*8 x 2"),
        ({name.replace("layers.0", "layers.7"): tensor for name, tensor in pair("mlp.up_proj").items()}, {}, "hasn't got"),
        (
            {
                name: tensor
                for rank, side in ((1, "A"), (2, "B"))
                for name, tensor in pair("mlp.up_proj", rank=rank).items()
                if side in name
            },
            {},
            "other half",
        ),
        (pair("mlp.up_proj"), {"use_dora": True}, "use_dora"),
        (pair("mlp.up_proj"), {"modules_to_save": ["lm_head"]}, "modules_to_save"),
        (pair("mlp.up_proj"), {"lora_alpha": None}, "lora_alpha"),
        (pair("mlp.up_proj"), {"peft_type": "IA3"}, "LoRA"),
    ],
)
def test_what_can_t_be_converted_is_named(tmp_path: Path, tensors: Tensors, config: dict[str, Any], why: str) -> None:
    with pytest.raises(AdapterError, match=why):
        convert(str(adapter(tmp_path, tensors, **config)), str(tmp_path / "made.gguf"), BASE)


def test_names_of_an_unknown_architecture_are_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="architecture mamba"):
        convert(
            str(adapter(tmp_path, pair("mlp.up_proj"))), str(tmp_path / "made.gguf"), Base(LLAMA._replace(architecture="mamba"), SHAPES)
        )


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_and_nothing_else(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = adapter(tmp_path_factory.getbasetemp() / "any", {})
    (folder / WEIGHTS).write_bytes(data)
    with pytest.raises(AdapterError):
        convert(str(folder), str(folder / "made.gguf"), BASE)


# ---- into the library ----------------------------------------------------------------------------------------------------------


class Loads:
    """Remembers what was loaded; refuses files that hold `bad`."""

    def __init__(self) -> None:
        self.names: list[list[str]] = []

    def __call__(self, paths: Sequence[str]) -> Any:
        names = [Path(path).name.removeprefix("adapter-").removesuffix(".gguf") for path in paths]
        if "bad" in names:
            raise LoadError("it doesn't fit")
        assert all(Path(path).read_bytes().startswith(b"GGUF") for path in paths)
        self.names.append(names)
        return f"library {len(self.names)}"


@pytest.fixture
def loads() -> Loads:
    return Loads()


@pytest.fixture
def weights(tmp_path: Path, loads: Loads) -> Weights:
    for name in ("a", "b", "bad", *(f"n{number}" for number in range(module.MOST_LOADED))):
        adapter(tmp_path / "adapters" / name, pair("mlp.up_proj"))
    (tmp_path / "scratch").mkdir()
    return Weights(loads, lambda: BASE, adapters=str(tmp_path / "adapters"), scratch=str(tmp_path / "scratch"))


@contextmanager
def lent(weights: Weights, adapter: str = "", cancelled: Callable[[], bool] = lambda: False) -> Iterator[Lent]:
    with weights.lend(adapter, cancelled=cancelled) as found:
        assert found is not None
        yield found


def test_an_adapter_is_loaded_when_it_is_first_asked_for_and_stays(weights: Weights, loads: Loads, tmp_path: Path) -> None:
    for name, scales in (("", []), ("a", [1.0]), ("b", [0.0, 1.0])):
        with lent(weights, name) as found:
            assert found.parameters.get("lora", []) == [{"id": number, "scale": scale} for number, scale in enumerate(scales)]
    with lent(weights, "a") as one, lent(weights, "b") as two, lent(weights) as three:
        assert one.library == two.library == three.library
        assert [each["scale"] for each in three.parameters["lora"]] == [0.0, 0.0], "who wants none says so"
    assert loads.names == [[], ["a"], ["a", "b"]]
    assert list((tmp_path / "scratch").iterdir()) == [], "nothing is left of the converted files"


def test_the_one_that_was_asked_for_longest_ago_makes_room(weights: Weights, loads: Loads) -> None:
    names = [f"n{number}" for number in range(module.MOST_LOADED)]
    for name in [*names, "n0", "a"]:
        with lent(weights, name):
            pass
    assert loads.names[-1] == [*names[2:], "n0", "a"]


def test_files_that_were_replaced_are_loaded_anew(weights: Weights, loads: Loads, tmp_path: Path) -> None:
    with lent(weights, "a"):
        pass
    adapter(tmp_path / "adapters" / "a", pair("mlp.gate_proj", rank=2))
    with lent(weights, "a"):
        pass
    assert loads.names == [[], ["a"], ["a"]]


def test_one_that_doesn_t_fit_is_refused_and_the_others_go_on(weights: Weights, loads: Loads, tmp_path: Path) -> None:
    with lent(weights, "a"):
        pass
    with pytest.raises(BadRequest, match="doesn't fit"), lent(weights, "bad"):
        pass
    with lent(weights, "a") as found:
        assert found.parameters
    assert loads.names == [[], ["a"], ["a"]]
    (tmp_path / "adapters" / "b" / CONFIG).write_text("{")
    for name, why in (("b", "no JSON"), ("c", "aren't there"), ("../a", "no fine-tune"), ("a/../a", "no fine-tune")):
        with pytest.raises(BadRequest, match=why), lent(weights, name):
            pass
    assert len(loads.names) == 3, "the weights are let go for nothing that can be known before"


def test_they_are_there_again_after_a_sleep_but_for_one_that_was_deleted(weights: Weights, loads: Loads, tmp_path: Path) -> None:
    for name in ("a", "b"):
        with lent(weights, name):
            pass
    weights.sleep()
    for file in (tmp_path / "adapters" / "b").iterdir():
        file.unlink()
    weights.wake()
    assert loads.names[-1] == ["a"]
    with lent(weights, "a"):
        pass
    assert len(loads.names) == 4


def test_weights_that_failed_to_load_are_tried_again_for_the_next_request(tmp_path: Path) -> None:
    states = [True, False, False, True]

    def load(paths: Sequence[str]) -> Any:
        if states.pop(0):
            return "library"
        raise LoadError("no memory")

    adapter(tmp_path / "a", pair("mlp.up_proj"))
    weights = Weights(load, lambda: BASE, adapters=str(tmp_path), scratch=str(tmp_path))
    with pytest.raises(LoadError, match="no memory"), lent(weights, "a"):
        pass
    with lent(weights) as found:
        assert found.library == "library"  # type: ignore[comparison-overlap]


def test_a_change_waits_for_what_runs_and_who_waits_may_leave(weights: Weights, loads: Loads) -> None:
    order: list[str] = []
    waits, leaves = threading.Event(), threading.Event()

    def change() -> None:
        def cancelled() -> bool:
            waits.set()
            return False

        with lent(weights, "a", cancelled):
            order.append("changed")

    def leave() -> None:
        with weights.lend("", cancelled=lambda: True) as found:
            assert found is None
        leaves.set()

    with lent(weights):
        changing = threading.Thread(target=change)
        changing.start()
        assert waits.wait(bound(10))
        leaving = threading.Thread(target=leave)
        leaving.start()
        assert leaves.wait(bound(10)), "it waits for the change, and leaves"
        order.append("ended")
    for thread in (changing, leaving):
        thread.join(bound(10))
    assert order == ["ended", "changed"] and loads.names == [[], ["a"]]
