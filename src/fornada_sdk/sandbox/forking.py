"""Forking a child that is process 1 of a pid namespace of its own."""

from __future__ import annotations

import os
import signal

from fornada_sdk.sandbox import syscalls


def fork_first() -> int:
    """As os.fork, but the child is process 1 of a new pid namespace: whatever it starts ends with it.

    It is the caller's own child, with all signals blocked; the caller's mask is as before. The caller must have one thread and
    CAP_SYS_ADMIN over its own pid namespace, which a process 1 whose user namespace owns both has. Raises OSError; nothing is
    changed then.

    Process 1 ignores signals that it sends itself and that it has no handler for, and orphans become its children. They stay
    zombies unless it reaps them, and count against its bound of processes.
    """
    # By pidfd, since /proc may be another namespace's. Going there before leaving it asks whether coming back will be allowed:
    # a caller that couldn't would never be able to fork again.
    own = os.pidfd_open(os.getpid())
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        syscalls.setns(own, syscalls.CLONE_NEWPID)
        syscalls.unshare(syscalls.CLONE_NEWPID)
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid != 0:
                syscalls.setns(own, syscalls.CLONE_NEWPID)
        if pid == 0:
            os.close(own)
            return 0
    except BaseException:
        os.close(own)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    os.close(own)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid
