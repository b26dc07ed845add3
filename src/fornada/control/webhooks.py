"""Sends the webhooks of jobs that have ended. A server that doesn't answer holds up nothing but its own account's."""

import asyncio
from collections import Counter
from collections.abc import Mapping

import msgspec

from fornada.core.errors import FornadaError
from fornada.core.jobs import Job, JobId, JobsPort, Status
from fornada.core.names import AccountId
from fornada.core.ports import Clock, EventLog
from fornada.core.webhooks import Hook, HookFailed, HookPort, HookRefused, HookState, HookStore, after, sending
from fornada.telemetry.times import rfc3339

LOOK_S = 0.5
AT_ONCE, EACH = 64, 8
"""Tries at the same time: of all accounts, and of one. Whoever names receivers that never answer has none left for his own, not for others."""


class Webhooks:
    """Started once, closed once. What was sent and not written down, because the process died, is sent again: receivers know a job by its id."""

    def __init__(self, *, store: HookStore, jobs: JobsPort, port: HookPort, secret: bytes, clock: Clock, log: EventLog) -> None:
        self._store = store
        self._jobs = jobs
        self._port = port
        self._secret = secret
        self._clock = clock
        self._log = log
        self._sending: dict[JobId, tuple[AccountId, asyncio.Task[None]]] = {}
        """By the job."""
        self._look: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Looks for what is due, now and from now on."""
        self._look = asyncio.get_running_loop().call_later(LOOK_S, self.start)
        try:
            self._begin()
        except FornadaError as error:
            self._log.warning("webhook.store_failed", reason=error.message)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        tries = Counter(account for account, _ in self._sending.values())
        # As long as some are found that have to wait for others of their account, there may be ones behind them that need not.
        while len(self._sending) < AT_ONCE:
            full = [account for account, count in tries.items() if count >= EACH]
            due = self._store.due_hooks(self._clock.wall(), most=AT_ONCE, besides=tuple(self._sending), without=full)
            for hook in due:
                job = self._jobs.job(hook.job, None)
                if tries[job.account] < EACH and len(self._sending) < AT_ONCE:
                    tries[job.account] += 1
                    task = loop.create_task(self._send(hook, job), name="webhook")
                    self._sending[hook.job] = job.account, task
                    task.add_done_callback(lambda _, id=hook.job: self._sending.pop(id, None))  # type: ignore[misc]
            if len(due) < AT_ONCE:
                return

    def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
        for _, task in self._sending.values():
            task.cancel()

    async def _send(self, hook: Hook, job: Job) -> None:
        try:
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
    counts = jobs.counts(job)
    return {
        "id": job.id,
        "account": job.account,
        "model": job.model,
        "status": job.status.value,
        "total": job.total,
        "counts": {status.value: counts[status] for status in Status if counts.get(status)},
        "created_at": rfc3339(job.created),
        "ended_at": rfc3339(job.ended),
    }
