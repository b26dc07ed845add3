"""Whom a model may be named to: on one node live models of accounts that are to know nothing of one another.

What is said of a model is heard by whoever may run it, in refusals, views and events of streams alike. So its reasons name others only
where all of these may know them (core.policy.naming); an account that asks for more is shown more of what is its own alone.
"""

from collections.abc import Mapping
from typing import Any

from fornada.core.names import AccountId, ModelName
from fornada.core.policy.naming import ANOTHER
from fornada.core.ports import CatalogPort

NOBODY = "\0"
"""No account's name: of a model that is removed and still ends."""
ANOTHER_ACCOUNT = "another account"


def known_to(catalog: CatalogPort, model: ModelName) -> str:
    """The account that alone may know of it; empty: everybody."""
    entry = catalog.entry(model)
    if entry is None:
        return NOBODY
    return "" if catalog.visibility(entry) == "node" else entry.account


def told(why: Mapping[str, Any], account: AccountId | None, catalog: CatalogPort) -> dict[str, Any]:
    """node.views' `why` as `account` may read it. None: everything."""
    if account is None:
        return dict(why)

    def may_know(model: ModelName) -> bool:
        return model == why["model"] or known_to(catalog, model) in ("", account)

    def discreet(one: Mapping[str, Any]) -> dict[str, Any]:
        """How much it holds, and since when it rests, is why the other isn't loaded; what it is isn't."""
        hidden = {name: "" for name in ("version", "instance") if name in one}
        return dict(one) if may_know(one["model"]) else {**one, **hidden, "model": ANOTHER}

    waiting: dict[str, int] = {}
    for who, count in why["queue"]["by_account"].items():
        shown = who if who == account else ANOTHER_ACCOUNT
        waiting[shown] = waiting.get(shown, 0) + count
    return {
        **why,
        "queue": {**why["queue"], "by_account": waiting},
        "residents": [discreet(one) for one in why["residents"]],
        "devices": [{**device, "holders": [discreet(one) for one in device["holders"]]} for device in why["devices"]],
    }
