"""What a key and an account may ask for: requests in a minute, neurons in a day (UTC).

A minute's requests are counted by this control plane alone, so that its successor begins anew; neurons are those of the usage, which outlives it.
What is refused doesn't count: a client that goes on asking would otherwise shut itself out for good.
"""

from collections.abc import Callable, Mapping

from fornada.core.errors import QuotaUsedUp, RateLimited
from fornada.core.names import AccountId, Instant
from fornada.core.policy.rates import Rate
from fornada.core.usage import UsagePort
from fornada.edge.auth import Caller


class Limits:
    """Asked once for each request of a hot route."""

    def __init__(
        self,
        *,
        usage: UsagePort,
        account_rpm: Mapping[str, int],
        account_neurons: Mapping[str, float],
        now: Callable[[], Instant],
    ) -> None:
        self._usage = usage
        self._account_rpm = account_rpm
        self._account_neurons = account_neurons
        self._accounts = frozenset(account_rpm) | frozenset(account_neurons)
        self._now = now
        self._rates: dict[str, Rate] = {}
        """By key, and by account behind an "@"; as many as there are limits."""

    def admit(self, caller: Caller, account: AccountId) -> None:
        """Counts a request. Raises RateLimited, QuotaUsedUp."""
        if not caller.rpm and not caller.neurons and account not in self._accounts:
            return
        self.afford(caller, account)
        now = self._now()
        own = self._rate(caller.key, caller.rpm) if caller.rpm else None
        if own is not None and (wait_s := own.wait_s(now)) > 0:
            raise RateLimited(f"this key may send {own.most} requests a minute", retry_after_s=wait_s)
        most = self._account_rpm.get(account)
        if most is not None:
            shared = self._rate(f"@{account}", most)
            if (wait_s := shared.wait_s(now)) > 0:
                raise RateLimited(f"the account '{account}' may send {most} requests a minute", retry_after_s=wait_s)
            shared.take(now)
        if own is not None:
            own.take(now)

    def _rate(self, name: str, most: int) -> Rate:
        rate = self._rates.get(name)
        if rate is None or rate.most != most:
            rate = self._rates[name] = Rate(most)
        return rate

    def afford(self, caller: Caller, account: AccountId) -> None:
        """Raises QuotaUsedUp where nothing is left of the day's neurons."""
        if caller.neurons and self._usage.spent(account, caller.key) >= caller.neurons:
            raise QuotaUsedUp(
                f"You have used up the daily allocation of {caller.neurons:g} neurons of this key; it begins anew at 00:00 UTC"
            )
        most = self._account_neurons.get(account, 0.0)
        if most and self._usage.spent(account, None) >= most:
            raise QuotaUsedUp(f"You have used up your account's daily allocation of {most:g} neurons; it begins anew at 00:00 UTC")
