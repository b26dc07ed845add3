"""What was used: by account, key, model and day, and what it costs in neurons."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from fornada.core.keys import KeyId
from fornada.core.names import AccountId, ModelName

DAY_S = 86400
"""Days are UTC's."""


class Use(NamedTuple):
    """Who used what."""

    account: AccountId
    key: KeyId
    """Empty where there was none: open mode, and items of jobs."""
    model: ModelName


class Amount(NamedTuple):
    """How much of it."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    device_seconds: float = 0.0
    neurons: float = 0.0

    def plus(self, other: "Amount") -> "Amount":
        return Amount(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.device_seconds + other.device_seconds,
            self.neurons + other.neurons,
        )


class UsageRow(msgspec.Struct, frozen=True):
    """One line of what was used."""

    account: str
    key: str
    model: str
    day: str
    """YYYY-MM-DD, UTC."""
    requests: int
    input_tokens: int
    output_tokens: int
    device_seconds: float
    neurons: float


class UsagePort(Protocol):
    """Counts what runners finish. Exact whatever process is killed: what was told is told to a successor."""

    def began(self, call: int, use: Use) -> None:
        """A request goes to a runner. `call` is its id on the wire, unlike any other while the keeper lives."""

    def ended(self, call: int, use: Use, amount: Amount) -> None:
        """The runner has finished it."""

    def dropped(self, call: int) -> None:
        """It is no longer with a runner, and nothing was finished."""

    def orphan(self, call: int) -> Use | None:
        """Whose request it was that a control plane before this one had sent, and nobody has counted yet; `ended` may follow."""

    def spent(self, account: AccountId, key: KeyId | None) -> float:
        """Neurons of this day, of the account or of one of its keys."""

    def rows(self, account: AccountId | None) -> Sequence[UsageRow]:
        """All that was used, of one account or of everybody. Raises what the store raises."""


class Uncounted:
    """A UsagePort for nodes whose use nobody wants to know."""

    def began(self, call: int, use: Use) -> None:
        pass

    def ended(self, call: int, use: Use, amount: Amount) -> None:
        pass

    def dropped(self, call: int) -> None:
        pass

    def orphan(self, call: int) -> Use | None:
        return None

    def spent(self, account: AccountId, key: KeyId | None) -> float:
        return 0.0

    def rows(self, account: AccountId | None) -> Sequence[UsageRow]:
        return []


def amount_of(price: Mapping[str, float], used: Mapping[str, Any], seconds: float) -> Amount:
    """What one request comes to. `used`: what model code counted. A price is for one `request`, `second` of the runner, `token`,
    `input_token`, `output_token`, `image` (one where nobody counted any), or whatever else the model counts, by its name or its plural.
    """
    taken, given = _count(used, "input_token"), _count(used, "output_token")
    units = {"request": 1.0, "second": seconds, "token": taken + given, "input_token": taken, "output_token": given}
    neurons = 0.0
    for unit, each in price.items():
        count = units[unit] if unit in units else _count(used, unit, usual=1.0 if unit == "image" else 0.0)
        neurons += each * count
    return Amount(1, int(taken), int(given), seconds, neurons)


TOKENS_MOST = 2**32 - 1
COUNT_MOST = 1e12
"""A model may say what it likes."""


def _count(used: Mapping[str, Any], unit: str, usual: float = 0.0) -> float:
    value = used.get(f"{unit}s", used.get(unit, usual))
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= COUNT_MOST:
        return usual
    return min(float(value), float(TOKENS_MOST)) if unit.endswith("token") else float(value)
