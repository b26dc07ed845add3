"""What waits to be sent, counted while several threads send."""

import collections
import socket
from typing import Any

from fornada_sdk.runner.attachment import Attachment


class EmptiedAtOnce(collections.deque[bytes]):
    """Another thread sends what is queued before the one that queued it goes on."""

    attachment: Attachment

    def extend(self, items: Any) -> None:
        super().extend(items)
        self.attachment.flush()


def test_nothing_counts_as_waiting_that_another_thread_has_sent_already():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    instance: Any = None
    attachment = Attachment(ours, instance, epoch=1, body_limit=1, writable=lambda *_: None)
    queue = EmptiedAtOnce()
    queue.attachment = attachment
    attachment._queue = queue
    attachment.send([b"answer"])
    assert theirs.recv(100) == b"answer"
    assert attachment.waiting == 0
    attachment.close()
    theirs.close()
