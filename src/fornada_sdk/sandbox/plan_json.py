"""A plan as JSON and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from fornada_sdk.sandbox import plan
from fornada_sdk.sandbox.plan import BadPlan, Entry, Plan
from fornada_sdk.sandbox.seccomp import Variant

_KINDS: dict[str, Callable[..., Entry]] = {
    "attached": plan.Attached,
    "memory": plan.Memory,
    "processes": plan.Processes,
    "link": plan.Link,
    "text": plan.Text,
    "folder": plan.Folder,
}
_Made = TypeVar("_Made")


def dump(given: Plan) -> dict[str, Any]:
    """Only objects, lists, texts and whole numbers; what is left out of the plan is left out here."""
    head: dict[str, Any] = {
        "cgroups": list(given.cgroups),
        "namespaces": sorted(namespace.value for namespace in given.namespaces),
        "loopback": given.loopback,
        "hostname": given.hostname,
        "capable": given.capable,
        "limits": dataclasses.asdict(given.limits),
    }
    if given.root is not None:
        entries = [{"kind": type(entry).__name__.lower(), **dataclasses.asdict(entry)} for entry in given.root.entries]
        head["root"] = {"entries": entries, "size_bytes": given.root.size_bytes, "files": given.root.files}
    if given.identity is not None:
        head["identity"] = dataclasses.asdict(given.identity)
    if given.users is not None:
        head["users"] = dataclasses.asdict(given.users)
    if given.landlock is not None:
        grants = [{"path": grant.path, "access": grant.access.value} for grant in given.landlock.grants]
        head["landlock"] = {"grants": grants, "refuse_tcp": given.landlock.refuse_tcp}
    if given.seccomp is not None:
        head["seccomp"] = given.seccomp.value
    return head


def load(head: dict[str, Any]) -> Plan:
    """Raises BadPlan for anything that `dump` doesn't write."""
    try:
        return _made(
            Plan,
            {
                **head,
                "cgroups": tuple(head.get("cgroups", ())),
                "namespaces": frozenset(map(plan.Namespace, head.get("namespaces", ()))),
                "limits": _made(plan.Limits, head.get("limits", {})),
                "root": _root(head["root"]) if "root" in head else None,
                "identity": _made(plan.Identity, head["identity"]) if "identity" in head else None,
                "users": _made(plan.Users, head["users"]) if "users" in head else None,
                "landlock": _landlock(head["landlock"]) if "landlock" in head else None,
                "seccomp": Variant(head["seccomp"]) if "seccomp" in head else None,
            },
        )
    except BadPlan:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadPlan(f"a plan that can't be read: {error!r}") from None


def _root(head: dict[str, Any]) -> plan.Root:
    entries = tuple(_entry(**entry) for entry in head["entries"])
    return _made(plan.Root, {**head, "entries": entries})


def _entry(kind: str, **fields: Any) -> Entry:
    return _made(_KINDS[kind], fields)


def _landlock(head: dict[str, Any]) -> plan.Landlock:
    grants = tuple(_made(plan.Grant, {**grant, "access": plan.Access(grant["access"])}) for grant in head["grants"])
    return _made(plan.Landlock, {**head, "grants": grants})


def _made(what: Callable[..., _Made], fields: dict[str, Any]) -> _Made:
    """Plain values keep the type of JSON: text where text is wanted, a whole number where one is."""
    hints = getattr(what, "__annotations__", {})
    for name, value in fields.items():
        wanted = {"str": str, "int": int, "bool": bool}.get(hints[name])
        if wanted is not None and type(value) is not wanted:
            raise TypeError(f"{name} is {value!r}")
    return what(**fields)
