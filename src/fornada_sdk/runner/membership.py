"""A member's conversations: a runner's, but for what would end the process, which ends this member alone."""

from __future__ import annotations

import os

from fornada_sdk.runner.session import Session, State
from fornada_sdk.wire.channel import Channel


class Membership(Session):
    """The member's end of everything. Read by the host's one thread, between calls."""

    lost = False
    """The keeper has let go of the member: there is nobody left to tell anything."""

    def _keeper_gone(self) -> None:
        self.lost = True
        self._epoll.unregister(self._keeper.fileno())
        self.state = State.STOPPING
        self._cancel_all()

    def _stop_loading(self, exit_code: int) -> None:
        self.state = State.STOPPING

    @property
    def unsent(self) -> bool:
        """Something is still to be taken by a control plane."""
        return any(attachment.waiting for attachment in self._attached.values())

    def close(self) -> Channel | None:
        """Closes everything but the channel to the keeper, on which leave is still to be taken; None where the keeper went first."""
        self._hang_up()
        for attachment in self._attached.values():
            attachment.close()
        self._epoll.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        if self.lost:
            self._keeper.close()
            return None
        return self._keeper
