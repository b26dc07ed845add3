"""Where requests for one version arrive: sent on at once, kept waiting, or refused.

The way of a request for a ready model with capacity is `submit` → `Link.send`, two plain calls.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from fornada.core.errors import Busy, DeadlinePassed, FornadaError
from fornada.core.names import Instant, ModelName
from fornada.core.policy.admission import SAMPLES, Standing, admit
from fornada.core.policy.batching import Slots, slots
from fornada.core.policy.idle_capacity import UNKNOWN_S
from fornada.core.requests import InferenceRequest, Priority, Sink
from fornada.core.specs import ServingSpec
from fornada.node.call import DONE, Call
from fornada.node.crew import Crew
from fornada.node.link import Link
from fornada.node.room import Resident
from fornada.node.site import Site

JOB = Priority.JOB
GAVE_WAY_RETRY_S = 1.0
"""Told to who gave its place in a full queue to an account with fewer there."""


def _gave_way() -> Busy:
    return Busy("the item gave way to a request that somebody waits for")


class Decider(Resident, Protocol):
    """The instance, which alone decides about its life."""

    def refusal(self, now: Instant) -> FornadaError | None:
        """Why no request can be taken for now, or None."""

    def wanted(self) -> None:
        """It is to be ready: requests wait and nothing is open."""

    def describe(self) -> str:
        """What a request waits for."""

    def emptied(self) -> None:
        """A call has ended while no new ones are let through."""

    def served(self) -> None:
        """The first call since `open` has been ended by the runner."""


class Intake:
    """Of one instance; the line is that of all instances of the version. The link's calls belong to the link. Implements node.call.Queue and
    node.crew.Member."""

    def __init__(self, decider: Decider, *, model: ModelName, serving: ServingSpec, site: Site, crew: Crew | None = None) -> None:
        """`crew`: of another instance of the same version; None: it is the first."""
        self._decider = decider
        self._model = model
        self._serving = serving
        self._site = site
        self._now = site.now
        self._wheel = site.wheel
        self._next_call = site.next_call
        self.link: Link | None = None
        """Set while requests may go to it."""
        self._granted_ahead = 0
        self._slots = Slots(0, 0)
        self._served = False
        self._go_on: Callable[[], None] | None = None
        """Set while the runner is stopped: nothing is sent before it was called."""
        self.crew = crew or Crew(site.room.asked_of(model, site.now()), weights=site.settings.account_weights)
        self.line, self._asked = self.crew.line, self.crew.asked
        self.service_s: deque[float] = deque(maxlen=SAMPLES)
        """The last times from sending to answer, for predictions."""
        self.last_used = site.now()
        self.worth = site.room.worth_of(model, self.last_used)
        self.answered_at: Instant | None = None
        """When a runner last ended a call; None: never yet."""

    # ---- requests

    def submit(self, request: InferenceRequest, sink: Sink) -> Call:
        """core.ports.InferencePort.submit, for this version."""
        now = self._now()
        if request.priority is not JOB:
            asked = self._asked
            asked.count += 1
            asked.at = now
        deadline = request.deadline
        if deadline is None:
            deadline = Instant(now + self._serving.timeout_s)
        call = Call(self._next_call(), request, sink, self, self._wheel, deadline, now)
        crew = self.crew
        if request.priority is JOB:
            crew.took_job(call)
        elif crew.jobs:
            self._ask_for_a_place(now)
        link = crew.freest() if crew.several else self.link
        if link is not None and link.has_room and not self.line and deadline > now and not request.reject_if_busy:
            link.send(call, now)
            self._wheel.add(call, deadline, now)
        else:
            self._consider(call, now)
        return call

    def take_back(self) -> list[Call]:
        """Those who wait and don't insist on this version: they go to another one."""
        leaving = [call for call in self.line if call.request.version is None]
        for call in leaving:
            self.withdraw(call)
        return leaving

    def take_over(self, calls: list[Call]) -> None:
        """Those who waited at another version. They have been admitted once and are not asked again."""
        for call in calls:
            call.queue = self
            self.line.add(call)
        self.crew.feed(self._now())
        if self.line:
            self._decider.wanted()

    def refuse_waiting(self, error: FornadaError) -> None:
        for call in self.line:
            call.refuse(error)

    def refuse_older(self, than: Instant, error: FornadaError) -> None:
        """Those who wait since before `than`."""
        for call in self.line:
            if call.since <= than:
                call.refuse(error)

    # ---- the link

    def open(self, link: Link, *, granted_ahead: int) -> None:
        """Requests may go to this runner from now on."""
        self.link = link
        self._granted_ahead = granted_ahead
        self._served = False
        self.last_used = self._now()
        self.worth.opened(self.last_used)
        self.service_s.clear()
        for call in () if self.crew.open else self.line:
            self._waited_for_swap(call)
        self._measure(link)
        self.crew.joined(self)
        self.feed(self.last_used)

    def hold(self, go_on: Callable[[], None]) -> None:
        """The runner is being stopped. `go_on` is called once, when the next request is there, which is sent at once."""
        if self.link is not None:
            self._go_on = go_on
            self._measure(self.link)

    def close(self) -> None:
        """No further request may go to it."""
        self._go_on = None
        self.link = None
        self.crew.left(self)
        self._slots = Slots(0, 0)
        self.worth.closed(self._now())

    def freed(self, link: Link) -> None:
        """The link's word that calls have ended or that its socket takes bytes again."""
        now = self.last_used = self._now()
        if link.ended:
            self.answered_at = now
        if self.link is not link:
            self._decider.emptied()
            return
        self._measure(link)
        if self.line:
            self.feed(now)
        if not self._served and link.ended:
            self._served = True
            self._decider.served()
        self._site.room.replan_soon()

    # ---- node.call.Queue

    def withdraw(self, call: Call) -> None:
        if self.line.discard(call) and not self.crew.open:
            self._waited_for_swap(call)
        self._site.room.replan_soon()

    def describe(self) -> str:
        if self.crew.open:
            return f"all {self.crew.working} places of {self._model} were taken"
        return self._decider.describe()

    # ---- within

    def _ask_for_a_place(self, now: Instant) -> None:
        """Somebody waits for an answer. Items of jobs that stand in the way give way, unless they are expected to be done soon; those that
        aren't then do so after all."""
        delay_s = self._site.settings.job_delay_s
        for item in self.crew.in_the_way():
            if max(self.service_s, default=UNKNOWN_S) - (now - item.sent_at) > delay_s:
                item.refuse(_gave_way())
            else:
                self._site.loop.call_later(delay_s, self._insist, item)

    def _insist(self, item: Call) -> None:
        crew = self.crew
        if item.state is not DONE and crew.asked_here and crew.full:
            item.refuse(_gave_way())

    def _standing(self, request: InferenceRequest) -> Standing:
        crew = self.crew
        at_runners = crew.in_flight
        before = at_runners + self.line.before(request.account, request.priority)
        return Standing(self._model, crew.working, at_runners + len(self.line), self._serving.queue, self.service_s, before)

    # ---- node.crew.Member

    @property
    def working(self) -> int:
        return self._slots.working

    @property
    def lanes(self) -> int:
        return self._serving.concurrency

    def _waited_for_swap(self, call: Call) -> None:
        """Until now nothing was ready to take it."""
        self._site.telemetry.metrics.swap_wait_seconds.at(self._model).observe(self._now() - call.since)

    def _consider(self, call: Call, now: Instant) -> None:
        ready = bool(self.crew.open)
        refusal = None if ready else self._decider.refusal(now)
        if refusal is None and call.deadline <= now:
            refusal = DeadlinePassed("the request's deadline had passed when it came")
        request, gives_way = call.request, None
        if refusal is None:
            standing = self._standing(request)
            if standing.ahead - standing.working >= standing.queue and not request.reject_if_busy:
                gives_way = self.line.weakest(request.account, request.priority)
                standing = standing._replace(ahead=standing.ahead - (gives_way is not None))
            bound_s = self._site.settings.max_wait_s
            room_s = self._site.room.waits_s(self._decider) if not ready else 0.0
            refusal = admit(standing, reject_if_busy=request.reject_if_busy, max_wait_s=bound_s, room_s=room_s)
        if refusal is not None:
            call.refuse(refusal)
            if request.reject_if_busy and not ready:
                self._decider.wanted()  # who doesn't want to wait for a load still is a reason for it
            return
        if gives_way is not None:
            text = f"{self._model} has as many requests waiting as its queue holds, most of them of account {gives_way.request.account}"
            gives_way.refuse(Busy(text, retry_after_s=GAVE_WAY_RETRY_S))
        self.line.add(call)
        self._wheel.add(call, call.deadline, now)
        if ready:
            self.crew.feed(now)
        else:
            self._decider.wanted()

    def feed(self, now: Instant) -> None:
        link = self.link
        if link is None or not self.line:
            return
        if self._go_on is not None:
            go_on, self._go_on = self._go_on, None
            self._measure(link)
            go_on()
        queue_s = self._site.telemetry.metrics.request_seconds.at(self._model, "queue")
        while self.line and link.has_room:
            call = self.line.pop()
            queue_s.observe(now - call.since)
            link.send(call, now)

    def _measure(self, link: Link) -> None:
        """How many calls the runner may hold, after what is known of its speed."""
        serving = self._serving
        self._slots = slots(
            concurrency=serving.concurrency,
            max_batch=serving.max_batch,
            granted_ahead=self._granted_ahead,
            service_s=self.service_s,
        )
        # Without room every request goes by `feed`: the short way never asks whether the runner is stopped.
        link.capacity = min(self._slots.sent, self._slots.working + serving.queue) if self._go_on is None else 0
