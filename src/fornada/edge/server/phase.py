"""Where the request that a connection receives stands."""

import enum


class Phase(enum.IntEnum):
    """IDLE is 0: the hot path asks for its truth alone."""

    IDLE = 0
    HEAD = 1
    BODY = 2
