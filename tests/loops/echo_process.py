"""The cheapest runner there can be, for measuring our side of the wire: echoes every body. `python echo_process.py FD INSTANCE`."""

import json
import socket
import struct
import sys

HEADER = struct.Struct("<IBBxxIQ")
PREFIX = struct.Struct("<If")
INVOKE, ANSWER, HELLO = 16, 5, 1
OK = b"\2\0\0\0{}"


def main() -> None:
    sock = socket.socket(fileno=int(sys.argv[1]))
    hello = json.dumps({"wire": 1, "instance": sys.argv[2], "state": "ready", "pipelining": 64}).encode()
    sock.send(HEADER.pack(len(hello), HELLO, 0, 0, 0) + hello)
    while packet := sock.recv(65536):
        answers = []
        at = 0
        while at < len(packet):
            length, kind, _, _, id = HEADER.unpack_from(packet, at)
            begin = at + HEADER.size
            at = begin + length
            if kind == INVOKE:
                head, _ = PREFIX.unpack_from(packet, begin)
                body = packet[begin + PREFIX.size + head : at]
                answers.append(HEADER.pack(len(OK) + len(body), ANSWER, 0, 0, id) + OK + body)
        if answers:
            sock.send(b"".join(answers))


main()
