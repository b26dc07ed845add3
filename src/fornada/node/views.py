"""A model, its instances and its reasons as people see them."""

from typing import Any

from fornada.core.lifecycle.events import FailureKind
from fornada.core.lifecycle.states import CLOSING, RESTING, WITH_PROCESS, State, outside
from fornada.core.names import NEVER, Instant
from fornada.core.policy.memory import CPU
from fornada.core.ports import ModelView
from fornada.node.instance import Instance
from fornada.node.ledger import words
from fornada.node.memory_use import resident_bytes
from fornada.node.model import Model
from fornada.node.residency import placed, residency, standing
from fornada.node.runner import Runner
from fornada.node.site import Site
from fornada.telemetry.times import rfc3339

ACCOUNTS_SHOWN = 20
"""Of those with requests in a line: clients may make up as many as they like."""


def view(model: Model, site: Site) -> ModelView:
    """M of INTERFACE."""
    current = model.current
    spec = current.version.spec
    instances = [instance for instance in model.all() if instance.runner is not None]
    pending = outside(current.state) == "pending"
    progress = {"phase": current.progress.phase, "text": current.progress.text, "fraction": current.progress.fraction}
    return ModelView(
        name=model.name,
        aliases=list(spec.aliases),
        task=spec.task,
        engine=spec.engine,
        version=current.version.digest,
        state=outside(current.state),
        why=summary(model, site),
        declared_bytes=declared_bytes(current),
        peak_bytes=max(peak_bytes(instance, site) for instance in model.all()),
        last_used=last_used(model, site),
        versions=[version_view(model, instance, site) for instance in model.instances.values()] + _unused_versions(model),
        instances=[instance_view(instance, site) for instance in instances],
        pinned=model.pinned,
        account=model.entry.account,
        description=spec.description,
        visibility=model.visibility,
        progress=progress if pending else None,
    )


def why(model: Model, site: Site) -> dict[str, Any]:
    """Why the model is (not) loaded: the sentence first, then the facts behind it."""
    current = model.current
    now = site.now()
    oldest = current.intake.line.oldest()
    return {
        "model": model.name,
        "version": current.version.digest,
        "state": outside(current.state),
        "since": rfc3339(site.clock.wall() - (now - current.since)),
        "step": current.state.value,
        "summary": summary(model, site),
        "pinned": model.pinned,
        "unloaded_by_operator": model.held,
        "progress": {"phase": current.progress.phase, "text": current.progress.text, "fraction": current.progress.fraction},
        "queue": {
            "waiting": len(current.intake.line),
            "in_flight": in_flight(current),
            "bound": current.version.spec.serving.queue,
            "oldest_s": round(now - oldest, 3) if oldest is not None else None,
            "by_account": _most(current.intake.line.by_account()),
        },
        "waits_for": site.room.reasons.get(current.key, "") if current.state is State.WAITING else "",
        "last_failure": last_failure(current, site),
        "incoming": incoming(model, site),
        "process": {
            "host": current.runner.host if current.runner is not None else "",
            "others": site.hosts.others(current.runner.id) if current.runner is not None else 0,
            "alone_because": current.alone_because,
            "start": current.runner.process.start if current.runner is not None else "",
            "zygote": site.zygotes.why(current.runner.id) if current.runner is not None else None,
            "parked": current.idling.parked,
        },
        "loads": model.loads,
        "load_attempts": model.attempts,
        "memory": memory(current, site),
        "residents": residents(site),
        "devices": device_views(site),
        "story": list(current.life.story),
    }


def _most(waiting: dict[str, int]) -> dict[str, int]:
    """Of the accounts with most waiting."""
    return dict(sorted(waiting.items(), key=lambda entry: (-entry[1], entry[0]))[:ACCOUNTS_SHOWN])


def summary(model: Model, site: Site) -> str:
    """One or two sentences."""
    sentence = _of_current(model, site)
    if model.incoming is not None:
        sentence += f" Version {model.incoming.version.digest[:12]} is {model.incoming.state.value} and takes over when it is ready."
    for instance in model.instances.values():
        bad = instance.life.failure.kind is not FailureKind.NONE and instance.state is State.FAILED
        if bad and instance not in (model.current, model.incoming):
            sentence += f" Version {instance.version.digest[:12]} was not taken: {instance.life.failure.reason}."
    return sentence


def _of_current(model: Model, site: Site) -> str:
    current = model.current
    doing = current.progress.text
    match current.state:
        case State.REGISTERED:
            return "Nothing runs: it hasn't been asked for yet. The next request loads it."
        case State.STOPPED if model.held:
            return "Nothing runs: an operator unloaded it. The next request or a load brings it back."
        case State.STOPPED:
            because = f": {_cause(current)}" if current.ended_because else ""
            return f"Nothing runs{because}. The next request loads it."
        case State.BUILDING | State.FETCHING:
            what = "Its environment is being built" if current.state is State.BUILDING else "Its artifacts are being fetched"
            return f"{what} ({doing})." if doing else f"{what}."
        case State.WAITING:
            return f"It waits for room: {site.room.reasons.get(current.key, 'no plan has been made yet')}."
        case State.SPAWNING:
            return "Its process is being started."
        case State.LOADING | State.WARMING:
            what = "It loads" if current.state is State.LOADING else "Its warm-up inference runs"
            return f"{what} ({doing})." if doing else f"{what}."
        case State.READY:
            runner = current.runner
            where = f"on {runner.device}, pid {runner.pid}{_shared(runner, site)}" if runner else ""
            where += ", brought up before anybody asked" if current.foreseen else ""
            where += ", and stopped until the next request comes" if current.idling.parked else ""
            return f"It is ready {where}: {in_flight(current)} requests in flight, {queued(current)} waiting."
        case State.DROWSY | State.FALLING_ASLEEP:
            return f"It falls asleep: {_cause(current)}. {in_flight(current)} requests still run, {queued(current)} wait and will wake it."
        case State.ASLEEP:
            return f"It sleeps ({_cause(current)}): its process waits without device memory. The next request wakes it."
        case State.ROUSED:
            return f"It is to wake and waits for room: {site.room.reasons.get(current.key, 'no plan has been made yet')}."
        case State.WAKING:
            return "It wakes: it takes its device memory again."
        case State.CANCELLING | State.UNWANTED | State.DRAINING | State.STOPPING:
            return f"It stops: {current.life.ending.reason or _cause(current)}. {in_flight(current)} requests still run."
        case State.FAILED:
            return _of_failed(current, site)


def _shared(runner: Runner, site: Site) -> str:
    if not runner.host:
        return ""
    others = site.hosts.others(runner.id)
    return f", a process that it shares with {others} other{'s' if others != 1 else ''}" if others else ", a process that others may share"


def _cause(instance: Instance) -> str:
    """`ended_because` is a word of ours or a sentence."""
    said = {
        "idle": "it was idle",
        "room": "another model needed the room",
        "unused": "it was brought up before anybody asked, and nobody did",
    }
    return said.get(instance.ended_because, instance.ended_because)


def _of_failed(instance: Instance, site: Site) -> str:
    failure = instance.life.failure
    if failure.retry_at == NEVER:
        return f"It failed for good ({failure.reason}). A reset or another version lets it try again."
    left_s = failure.retry_at - site.now()
    when = f"in {left_s:.0f} s at the earliest" if left_s > 0 else "with the next request"
    return f"It failed ({failure.reason}). It is tried again {when}; a reset lets it try at once."


def last_failure(instance: Instance, site: Site) -> dict[str, Any] | None:
    failure = instance.life.failure
    if failure.kind is FailureKind.NONE:
        return None
    now = site.now()
    return {
        "kind": failure.kind.value,
        "reason": failure.reason,
        "last_line": instance.past.last_line,
        "time": rfc3339(site.clock.wall() - (now - failure.at)),
        "failures": instance.life.failures,
        "crashes": instance.life.crashes,
        "retry_in_s": None if failure.retry_at == NEVER else round(max(0.0, failure.retry_at - now), 3),
        "past": _is_over(instance),
    }


def _is_over(instance: Instance) -> bool:
    """Since its last failure it has been ready, or has answered after a crash."""
    state, life = instance.state, instance.life
    if state is State.FAILED or outside(state) == "pending":
        return False
    crashed = life.failure.kind in (FailureKind.CRASH, FailureKind.FAULT, FailureKind.HUNG)
    return outside(state) in ("ready", "asleep") or not (life.crashes if crashed else life.failures)


def incoming(model: Model, site: Site) -> dict[str, Any] | None:
    if model.incoming is None:
        return None
    return {"version": model.incoming.version.digest, "state": outside(model.incoming.state), "step": model.incoming.state.value}


def version_view(model: Model, instance: Instance, site: Site) -> dict[str, Any]:
    digest = instance.version.digest
    failed = instance.state is State.FAILED
    return {
        "version": digest,
        "labels": labels(model, digest),
        "state": outside(instance.state),
        "created": rfc3339(instance.version.created),
        "serving": instance is model.current,
        "why": instance.life.failure.reason if failed else "",
    }


def _unused_versions(model: Model) -> list[dict[str, Any]]:
    """Versions of the catalogue of which this node has run nothing yet."""
    unused = [digest for digest in model.entry.versions if digest not in model.instances]
    return [{"version": digest, "labels": labels(model, digest), "state": "stopped", "serving": False, "why": ""} for digest in unused]


def labels(model: Model, digest: str) -> list[str]:
    entry = model.entry
    canary = ["canary"] if entry.canary is not None and entry.canary.digest == digest else []
    return (["stable"] if entry.stable.digest == digest else []) + canary


def residency_view(site: Site) -> dict[str, Any]:
    """Who has memory, who waits for it, who had to go, and how much of the time went into it."""
    return residency(
        site,
        [
            {"model": instance.model, "declared_bytes": declared_bytes(instance), **instance_view(instance, site)}
            for instance in placed(site)
        ],
    )


def instance_view(instance: Instance, site: Site) -> dict[str, Any]:
    """Also of one whose process is only being started: `id` is empty and `pid` null then."""
    runner = instance.runner
    over = runner is not None and instance.state not in WITH_PROCESS
    return {
        "id": runner.id if runner is not None else "",
        "pid": runner.pid if runner is not None else None,
        "state": "stopping" if over else outside(instance.state),
        "device": runner.device if runner is not None else instance.device,
        "resident_bytes": held_bytes(instance),
        "in_flight": in_flight(instance),
        "queued": queued(instance),
        "loads": runner.load_count if runner is not None else 0,
        "version": instance.version.digest,
        "host": runner.host if runner is not None else "",
        "start": runner.process.start if runner is not None else "",
        "parked": instance.idling.parked,
        **standing(instance, site),
    }


def in_flight(instance: Instance) -> int:
    """Requests that are worked on; what was sent ahead of that counts as queued."""
    sent = len(instance.runner.link.calls) if instance.runner is not None else 0
    serving = instance.version.spec.serving
    return min(sent, serving.concurrency * serving.max_batch)


def queued(instance: Instance) -> int:
    return instance.calls - in_flight(instance)


def declared_bytes(instance: Instance) -> int:
    """Of the device that it runs on or would run on: device memory where it asks for any, else host memory."""
    return instance.device_bytes or instance.memory_bytes


def peak_bytes(instance: Instance, site: Site) -> int:
    """The most that a process of it has held on its device, as it was measured: now or earlier, also before the node was restarted."""
    learned = site.ledger.learned(instance)
    return max(instance.past.peak_bytes, held_bytes(instance), learned.device_bytes if instance.device_bytes else learned.memory_bytes)


def held_bytes(instance: Instance) -> int:
    """What it holds on its device: booked, or host memory. In a process that it shares: what that grew by while it loaded."""
    runner = instance.runner
    if runner is None:
        return 0
    return instance.booked_bytes or (runner.grown_bytes if runner.host else resident_bytes(runner.pid))


def last_used(model: Model, site: Site) -> str | None:
    used: list[Instant] = [i.intake.answered_at for i in model.all() if i.intake.answered_at is not None]
    return rfc3339(site.clock.wall() - (site.now() - max(used))) if used else None


def residents(site: Site) -> list[dict[str, Any]]:
    now = site.now()
    return [
        {
            "model": instance.model,
            "version": instance.version.digest,
            "state": instance.state.value,
            "device": site.room.device_of(instance),
            "calls": instance.calls,
            "kept": instance.kept,
            "charged_bytes": site.room.charged_bytes(instance),
            "idle_s": round(now - instance.last_used, 3) if not instance.calls and instance.state not in CLOSING else 0.0,
        }
        for instance in site.room.residents()
        if isinstance(instance, Instance) and instance.state not in RESTING
    ]


def memory(instance: Instance, site: Site) -> dict[str, Any]:
    """What it is charged where it has a place, or would be charged: why so much."""
    device, host = site.ledger.estimates(instance)
    estimates = {
        kind: {"declared_bytes": estimate.declared_bytes, "learned_bytes": estimate.learned_bytes}
        for kind, estimate in (("device", device), ("host", host))
    }
    charges = site.room.charges(instance)
    if charges is None:
        return {"device": "", "expected": estimates, "charged": None}
    return {
        "device": site.room.device_of(instance),
        "expected": estimates,
        "charged": {"device": words(charges.device), "host": words(charges.memory)},
    }


def device_views(site: Site) -> list[dict[str, Any]]:
    """Each with who holds what of it and why."""
    holders = site.room.holders()
    host = [(resident, charges.memory) for on in holders.values() for resident, charges in on]
    found = []
    for view in site.devices.views(charged=site.room.charged(), now=site.now()):
        on = host if view["id"] == CPU else [(resident, charges.device) for resident, charges in holders.get(view["id"], ())]
        listed = [
            {"model": resident.model, "instance": process.id if (process := resident.process) else "", **words(charge)}
            for resident, charge in on
            if charge.bytes
        ]
        found.append({**view, "reserved_bytes": sum(charge.bytes for _, charge in on), "holders": listed})
    return found
