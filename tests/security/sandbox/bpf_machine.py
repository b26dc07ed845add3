"""The kernel's interpreter of classic packet filters, as far as our programs go."""

import struct


class BadProgram(Exception):
    """The kernel would refuse it, or it would run off its end."""


def run(program: bytes, data: bytes) -> int:
    """What the program returns for `data`. Raises BadProgram."""
    instructions = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    if len(program) % 8 or not 0 < len(instructions) <= 4096:
        raise BadProgram("its length")
    accumulator, at = 0, 0
    while at < len(instructions):
        code, if_true, if_false, value = instructions[at]
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            if value % 4 or value + 4 > len(data):
                raise BadProgram(f"loads from {value}")
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x54:
            accumulator &= value
        elif code == 0x05:
            at += value
        elif code == 0x15:
            at += if_true if accumulator == value else if_false
        elif code == 0x35:
            at += if_true if accumulator >= value else if_false
        elif code == 0x45:
            at += if_true if accumulator & value else if_false
        else:
            raise BadProgram(f"knows no {code:#x}")
    raise BadProgram("runs off its end")


def call(number: int, audit: int, *arguments: int) -> bytes:
    """struct seccomp_data; an argument has 64 bits."""
    filled = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    return struct.pack("=IIQ6Q", number & 0xFFFFFFFF, audit, 0, *(argument & (2**64 - 1) for argument in filled))
