"""The node itself: health, metrics, devices, what happens."""

from collections.abc import Callable

from fornada.core.errors import BadRequest, Unavailable
from fornada.core.keys import Role
from fornada.core.ports import OperationsPort
from fornada.edge.calls import Call, Operation, Reply, Route, json_reply
from fornada.edge.dialects.admin import descriptions as d
from fornada.edge.dialects.admin.feeds import events_of
from fornada.edge.json_bodies import fields_of, value_of
from fornada.edge.observer import Observer
from fornada.edge.problems import Style

OLDEST_LOOP_S = 1.0
"""A scheduler that didn't turn for so long doesn't serve."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def node_routes(*, operations: OperationsPort, observer: Observer, draining: Callable[[], bool]) -> list[Route]:
    node = _Node(operations, observer, draining)
    return [
        Route(
            "/health/live",
            Style.SUPERSET,
            {"GET": Operation("isAlive", "200 while the process can answer", d.STATUS, node.live, Role.NOBODY)},
        ),
        Route(
            "/health/ready",
            Style.SUPERSET,
            {"GET": Operation("isReady", "200 once requests are accepted", d.STATUS, node.ready, Role.NOBODY, errors=(Unavailable,))},
        ),
        Route(
            "/metrics",
            Style.SUPERSET,
            {
                "GET": Operation(
                    "readMetrics", "Metrics for Prometheus", {"type": "string"}, node.metrics, Role.ADMIN, answer_type=METRICS_TYPE
                )
            },
        ),
        Route(
            "/api/v1/devices",
            Style.SUPERSET,
            {"GET": Operation("listDevices", "Devices, their memory", d.DEVICES, node.devices, Role.ADMIN)},
        ),
        Route(
            "/api/v1/devices/{device}",
            Style.SUPERSET,
            {
                "PATCH": Operation(
                    "changeDevice",
                    "Change a fake device, or lift a real one's fence",
                    d.DEVICE,
                    node.change,
                    Role.ADMIN,
                    takes={"application/json": d.DEVICE_CHANGE},
                    errors=(BadRequest,),
                )
            },
        ),
        Route(
            "/api/v1/residency",
            Style.SUPERSET,
            {
                "GET": Operation(
                    "readResidency", "Who has memory, who waits for it, and who had to go", d.RESIDENCY, node.residency, Role.ADMIN
                )
            },
        ),
        Route(
            "/api/v1/nodes",
            Style.SUPERSET,
            {"GET": Operation("listNodes", "The nodes of the fleet: this one", d.NODES, node.nodes, Role.ADMIN)},
        ),
        Route(
            "/api/v1/events",
            Style.SUPERSET,
            {
                "GET": Operation(
                    "followEvents", "What happens from now on", {"type": "object"}, node.events, Role.ADMIN, answer_type="text/event-stream"
                )
            },
        ),
    ]


class _Node:
    """Handlers."""

    def __init__(self, operations: OperationsPort, observer: Observer, draining: Callable[[], bool]) -> None:
        self._operations = operations
        self._observer = observer
        self._draining = draining

    async def live(self, call: Call) -> Reply:
        return json_reply({"status": "live"})

    async def ready(self, call: Call) -> Reply:
        health = self._operations.health()
        if self._draining() or health.draining:
            raise Unavailable("the node is shutting down", retry_after_s=1)
        if not health.accepting:
            raise Unavailable("the node is starting", retry_after_s=1)
        if health.loop_age_s > OLDEST_LOOP_S:
            raise Unavailable(f"the scheduler has not turned for {health.loop_age_s:.1f} s", retry_after_s=1)
        return json_reply({"status": "ready"})

    async def metrics(self, call: Call) -> Reply:
        return Reply(self._observer.render(), METRICS_TYPE)

    async def devices(self, call: Call) -> Reply:
        return json_reply({"devices": list(self._operations.devices())})

    async def residency(self, call: Call) -> Reply:
        return json_reply(self._operations.residency())

    async def change(self, call: Call) -> Reply:
        change = {name: value_of(raw) for name, raw in fields_of(call.body.strip() or b"{}").items()}
        return json_reply(self._operations.patch_device(call.parameters["device"], change))

    async def nodes(self, call: Call) -> Reply:
        node = self._operations.node()
        return json_reply({**node, "nodes": [node]})

    async def events(self, call: Call) -> Reply:
        return events_of(self._operations.events())
