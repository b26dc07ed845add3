"""What the requests of one runner use, as the control plane sees it: told before an answer is acknowledged."""

from collections.abc import Mapping

from fornada.core.keys import KeyId
from fornada.core.names import AccountId, ModelName
from fornada.core.requests import AnswerHead
from fornada.core.usage import Amount, Uncounted, UsagePort, Use, amount_of
from fornada.node.call import Call

SHORT_RUN_S = 0.001
"""Runs shorter than this don't say how long they took (fornada_sdk.runner.answers); they count as so long, or as the whole way there and back."""
LONGEST_RUN_S = 86400.0
MOST_USES = 4096
"""Accounts and keys remembered; beyond it all are forgotten, since in open mode clients make them up."""


class Meter:
    """Of one runner."""

    __slots__ = ("_model", "_price", "_usage", "_uses")

    def __init__(self, usage: UsagePort, model: ModelName, price: Mapping[str, float]) -> None:
        self._usage = usage
        self._model = model
        self._price = price
        self._uses: dict[tuple[AccountId, KeyId], Use] = {}

    def sent(self, call: Call) -> None:
        self._usage.began(call.id, self._use(call))

    def ended(self, call: Call, said: AnswerHead, took_s: float) -> None:
        """The runner's last word of it, whether anybody waits for it or not."""
        if said.status == "cancelled" and not said.run_s:
            self._usage.dropped(call.id)
            return
        seconds = said.run_s or SHORT_RUN_S
        # A runner is hostile: it can't have worked for longer than we waited.
        seconds = seconds if 0.0 < seconds < took_s else took_s
        self._usage.ended(call.id, self._use(call), self._amount(said, seconds))

    def unheard(self, call: Call, took_s: float) -> None:
        """Its answer was long, and thrown away as it came."""
        self.ended(call, AnswerHead(run_s=took_s), took_s)

    def lost(self, call: Call) -> None:
        """It is no longer with the runner: that is dead, or is to try again."""
        self._usage.dropped(call.id)

    def orphaned(self, call: int, said: AnswerHead) -> None:
        """A request that a control plane before this one had sent has ended."""
        use = self._usage.orphan(call)
        if use is None:
            return
        if said.status == "cancelled" and not said.run_s:
            self._usage.dropped(call)
            return
        seconds = said.run_s or SHORT_RUN_S
        self._usage.ended(call, use, self._amount(said, seconds if 0.0 < seconds < LONGEST_RUN_S else SHORT_RUN_S))

    def _amount(self, said: AnswerHead, seconds: float) -> Amount:
        if not self._price and not said.usage:
            return Amount(1, 0, 0, seconds, 0.0)
        return amount_of(self._price, said.usage, seconds)

    def _use(self, call: Call) -> Use:
        request = call.request
        who = (request.account, request.key)
        use = self._uses.get(who)
        if use is None:
            if len(self._uses) >= MOST_USES:
                self._uses.clear()
            use = self._uses[who] = Use(request.account, request.key, self._model)
        return use


UNMETERED = Meter(Uncounted(), ModelName(""), {})
