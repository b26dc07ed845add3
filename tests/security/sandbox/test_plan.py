"""Plans as values: what they refuse, and how they travel."""

import dataclasses
import json

import pytest

from fornada_sdk.sandbox import plan, plan_json
from fornada_sdk.sandbox.plan import Access, BadPlan, Grant, Namespace, Plan
from fornada_sdk.sandbox.seccomp import Variant

FULL = Plan(
    cgroups=(3, 4),
    namespaces=frozenset(Namespace),
    loopback=True,
    root=plan.Root(
        (
            plan.Attached("/usr", 0),
            plan.Memory("/tmp", 1 << 20, 100),
            plan.Processes(),
            plan.Link("/lib", "usr/lib"),
            plan.Text("/etc/passwd", "model\n"),
            plan.Folder("/run"),
        ),
        size_bytes=1 << 20,
    ),
    hostname="model",
    identity=plan.Identity(200_001, 200_001),
    users=plan.Users(),
    limits=plan.Limits(memory_bytes=1 << 30, processes=10),
    landlock=plan.Landlock((Grant("/", Access.READ), Grant("/tmp", Access.WRITE)), refuse_tcp=True),
    seccomp=Variant.NETWORK,
)


@pytest.mark.parametrize("given", [FULL, Plan(), Plan(seccomp=Variant.STRICT), Plan(namespaces=frozenset([Namespace.IPC]))])
def test_a_plan_travels_as_json(given: Plan):
    assert plan_json.load(json.loads(json.dumps(plan_json.dump(given)))) == given


@pytest.mark.parametrize(
    ("change", "needs"),
    [
        ({"root": plan.Root(())}, Namespace.MOUNTS),
        ({"loopback": True}, Namespace.NETWORK),
        ({"hostname": "model"}, Namespace.HOSTNAME),
    ],
)
def test_a_plan_that_would_change_the_host_is_refused(change, needs: Namespace):
    with pytest.raises(BadPlan, match=needs.value):
        Plan(namespaces=frozenset(Namespace) - {needs}, **change)
    assert Plan(namespaces=frozenset([needs]), **change)
    with pytest.raises(BadPlan):
        dataclasses.replace(FULL, namespaces=FULL.namespaces - {needs})


@pytest.mark.parametrize(
    "spoil",
    [
        {"seccomp": "open"},
        {"namespaces": ["users"]},
        {"namespaces": 3},
        {"colour": "red"},
        {"root": {"entries": [{"kind": "door", "path": "/"}]}},
        {"root": {"entries": [{"kind": "folder", "path": 3}]}},
        {"root": {"entries": [{"kind": "attached", "path": "/a", "descriptor": True}]}},
        {"root": {"entries": [{"kind": "attached", "path": "/a"}]}},
        {"landlock": {"grants": [{"path": "/", "access": "all"}]}},
        {"identity": {"uid": "0", "gid": 0}},
        {"limits": {"processes": 1.5}},
        {"hostname": None},
    ],
    ids=str,
)
def test_anything_else_is_no_plan(spoil):
    with pytest.raises(BadPlan):
        plan_json.load({**plan_json.dump(FULL), **spoil})
