"""What the edge remembers of each version of a model."""

import time
from typing import Any

import msgspec
import pytest

from fornada.core.errors import BadRequest
from fornada.core.names import LOCAL_ACCOUNT, VersionDigest, parse_reference
from fornada.core.ports import Resolved, Version
from fornada.core.specs import spec_from_table
from fornada.edge.observer import Meter, Unobserved
from fornada.edge.tasks import task_of
from fornada.edge.validation import Contract, Contracts
from tests.unit.edge.fakes import FakeCatalog


class Names(Unobserved):
    """Remembers whose meter is whose."""

    def __init__(self) -> None:
        self.meters: dict[str, Meter] = {}

    def meter(self, model: str) -> Meter:
        self.meters[model] = super().meter(model)
        return self.meters[model]


def test_one_folder_under_two_names_is_counted_under_each():
    catalog, observer = FakeCatalog(), Names()
    first = catalog.add("@test/first")
    second = catalog.add("@test/second")
    same = msgspec.structs.replace(second.stable, digest=first.stable.digest)
    catalog.models["@test/second"] = msgspec.structs.replace(second, stable=same, versions=(same.digest,))
    contracts = Contracts(observer=observer, catalog=catalog)
    for name in ("@test/first", "@test/second"):
        resolved = catalog.resolve(parse_reference(name), LOCAL_ACCOUNT)
        assert contracts.of(resolved).meter is observer.meters[name]


def test_while_a_deploy_is_under_way_requests_are_read_by_what_the_older_version_takes():
    catalog = FakeCatalog()
    newer = catalog.add("@test/a", serving={"max_body": "2MiB"})
    spec = spec_from_table({"name": "@test/a", "serving": {"max_body": "1MiB"}})
    older = msgspec.structs.replace(newer.stable, digest=VersionDigest("0" * 64), spec=spec)
    contracts = Contracts(observer=Unobserved(), catalog=catalog)

    def bytes_taken(serving: Version | None) -> int:
        entry = msgspec.structs.replace(newer, serving=serving)
        return contracts.of(Resolved(entry, entry.answering.spec, None)).max_body

    assert bytes_taken(older) == 1024**2
    assert bytes_taken(None) == bytes_taken(newer.stable) == 2 * 1024**2


@pytest.mark.parametrize("depth", [20, 60])
def test_a_choice_that_leads_back_to_itself_is_refused_without_telling_every_way_of_not_matching(depth):
    node = {"anyOf": [{"properties": {"c": {"$ref": "#/$defs/n"}}, "required": [name]} for name in ("x", "y")]}
    schema = {"$defs": {"n": node}, "type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}}
    contract = Contract(task_of("custom"), input=schema, output=None, max_body=1000, meter=Unobserved().meter("@test/a"))
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"c": value}
    began = time.monotonic()
    with pytest.raises(BadRequest, match="doesn't match the model's schema"):
        contract.check(value)
    assert time.monotonic() - began < 1
