"""Sends the webhooks of jobs that have ended. A server that doesn't answer holds up nothing but its own."""

import asyncio
from collections.abc import Mapping

import msgspec

from fornada.core.errors import FornadaError
from fornada.core.jobs import Job, JobsPort, Status
from fornada.core.ports import Clock, EventLog
from fornada.core.webhooks import Hook, HookFailed, HookPort, HookRefused, HookState, HookStore, after, sending
from fornada.telemetry.times import rfc3339

LOOK_S = 0.5
AT_ONCE = 8


class Webhooks:
    """Started once, closed once. What was sent and not written down, because the process died, is sent again: receivers know a job by its id."""

    def __init__(self, *, store: HookStore, jobs: JobsPort, port: HookPort, secret: bytes, clock: Clock, log: EventLog) -> None:
        self._store = store
        self._jobs = jobs
        self._port = port
        self._secret = secret
        self._clock = clock
        self._log = log
        self._sending: dict[str, asyncio.Task[None]] = {}
        """By the job's id."""
        self._look: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Looks for what is due, now and from now on."""
        self._look = asyncio.get_running_loop().call_later(LOOK_S, self.start)
        try:
            due = self._store.due_hooks(self._clock.wall(), most=2 * AT_ONCE)
        except FornadaError as error:
            self._log.warning("webhook.store_failed", reason=error.message)
            return
        for hook in due:
            if hook.job not in self._sending and len(self._sending) < AT_ONCE:
                task = asyncio.get_running_loop().create_task(self._send(hook), name="webhook")
                self._sending[hook.job] = task
                task.add_done_callback(lambda _, job=hook.job: self._sending.pop(job, None))  # type: ignore[misc]

    def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
        for task in self._sending.values():
            task.cancel()

    async def _send(self, hook: Hook) -> None:
        try:
            job = self._jobs.job(hook.job, None)
            now = self._clock.wall()
            said = sending(msgspec.json.encode(_told(job, self._jobs)), job=job.id, secret=self._secret, now=now)
            sent, hopeless, became = False, False, "answered"
            try:
                await self._port.post(hook.url, said.body, said.headers)
                sent = True
            except HookRefused as refusal:
                hopeless, became = True, str(refusal)
            except HookFailed as failure:
                became = str(failure)
            found = after(hook, became, sent=sent, hopeless=hopeless, now=self._clock.wall())
            self._store.put_hook(found)
        except FornadaError as error:
            self._log.warning("webhook.store_failed", reason=error.message)
            return
        tell = self._log.warning if found.state is HookState.GIVEN_UP else self._log.info
        tell("webhook.tried", job=hook.job, state=found.state.value, tries=found.tries, reason=became)


def _told(job: Job, jobs: JobsPort) -> Mapping[str, object]:
    statuses = jobs.statuses(job)
    return {
        "id": job.id,
        "account": job.account,
        "model": job.model,
        "status": job.status.value,
        "total": job.total,
        "counts": {status.value: statuses.count(status) for status in Status if status in statuses},
        "created_at": rfc3339(job.created),
        "ended_at": rfc3339(job.ended),
    }
