"""Which models apply adapters, and whose process may see them."""

from typing import Any

import msgspec
import pytest

from fornada.core.finetunes import applies_adapters, shows_adapters
from fornada.core.ports import Version
from tests.unit.edge.fakes import FakeCatalog

LOCK = "# from requirements.in\nxllamacpp==2026.10.11549 \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n"


def version(lock: str = LOCK, **tables: Any) -> Version:
    made = FakeCatalog().add("@test/m", **{"task": "text-generation", "engine": "gguf", **tables}).stable
    return msgspec.structs.replace(made, lock=lock)


def test_a_model_that_is_nothing_but_weights_shows_its_process_all_adapters():
    assert shows_adapters(version()) and shows_adapters(version(""))


@pytest.mark.parametrize(
    "lock",
    [
        LOCK + "spy==1.0 \\\n    --hash=sha256:00\n",
        LOCK.replace("xllamacpp==2026.10.11549", "xllamacpp @ file:///spy.whl"),
        "xllamacpp-spy==1 \\\n    --hash=sha256:00\n",
    ],
)
def test_what_somebody_brought_along_sees_none(lock: str):
    assert not shows_adapters(version(lock)) and applies_adapters(version(lock).spec)
    assert shows_adapters(msgspec.structs.replace(version(lock), builtin=True)), "the node's own models are the operator's"


@pytest.mark.parametrize(
    "tables",
    [{"engine": "python"}, {"task": "custom"}, {"python": {"entry": "model.py"}}, {"schema": {"input": "schema.json"}}],
)
def test_code_and_schemas_of_an_author_apply_none(tables: dict[str, Any]):
    assert not applies_adapters(version(**tables).spec) and not shows_adapters(version(**tables))
