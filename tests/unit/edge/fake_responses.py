"""Responses in memory."""

from fornada.core.errors import DiskFull
from fornada.core.names import AccountId
from fornada.core.responses import KeptResponse


class FakeResponses:
    """Implements core.responses.ResponseStore."""

    def __init__(self) -> None:
        self.kept: dict[str, KeptResponse] = {}
        self.full = False

    def keep_response(self, kept: KeptResponse, *, since: float, most: int, most_bytes: int) -> None:
        if self.full:
            raise DiskFull("no space left")
        self.kept[kept.id] = kept
        self.kept = {id: each for id, each in self.kept.items() if each.created >= since}
        own = sorted((each for each in self.kept.values() if each.account == kept.account), key=lambda each: each.created)
        while len(own) > most or sum(each.size for each in own) > most_bytes:
            del self.kept[own.pop(0).id]

    def response(self, id: str, account: AccountId, *, since: float) -> KeptResponse | None:
        found = self.kept.get(id)
        return found if found is not None and found.account == account and found.created >= since else None

    def remove_response(self, id: str, account: AccountId) -> bool:
        if id not in self.kept or self.kept[id].account != account:
            return False
        del self.kept[id]
        return True
