"""What the edge remembers of each version of a model."""

import msgspec

from fornada.core.names import LOCAL_ACCOUNT, parse_reference
from fornada.edge.observer import Meter, Unobserved
from fornada.edge.validation import Contracts
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
