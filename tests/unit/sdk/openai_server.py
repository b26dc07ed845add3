"""A small server that speaks as OpenAI does, for the tests of engine "command". Standard library only; it is run as a script.

What it does is asked for in its arguments (start) and in the request's last message (the word that it begins with):
"die", "break" (the connection, in the middle), "fail" (an error event), "refuse" (400), "busy" (503), "slow" (a token every 50 ms),
"whole" (no stream although one was asked for), "big". Anything else is repeated word by word.
"""

import argparse
import http.server
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--socket", default="")
ARGUMENTS.add_argument("--port", type=int, default=0)
ARGUMENTS.add_argument("--listen-after", type=float, default=0.0, help="seconds of talking before it listens")
ARGUMENTS.add_argument("--healthy-after", type=float, default=0.0, help="seconds of 503 before the health path says yes")
ARGUMENTS.add_argument("--health", default="/health")
ARGUMENTS.add_argument("--exit", default="", help="CODE:LAST LINE, before it listens")
ARGUMENTS.add_argument("--child", action="store_true", help="starts a process of its own, and writes its pid")
ARGUMENTS.add_argument("--stubborn", action="store_true", help="ignores SIGTERM")
ARGUMENTS.add_argument("--show", default="", help="is written to stdout")
OPTIONS = ARGUMENTS.parse_args()
BEGAN = time.monotonic()
ASLEEP = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = False

    def address_string(self) -> str:
        return "-"

    def log_message(self, format: str, *args: object) -> None:
        print("access:", format % args, flush=True)

    def do_GET(self) -> None:
        if self.path == OPTIONS.health:
            ready = time.monotonic() - BEGAN >= OPTIONS.healthy_after + OPTIONS.listen_after
            self.answer({"status": "ok" if ready else "loading"}, 200 if ready else 503)
        elif self.path == "/v1/models":
            self.answer({"object": "list", "data": [{"id": "their-name"}]})
        else:
            self.answer({"error": {"message": "no such path"}}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if self.path.startswith("/sleep"):
            ASLEEP.set()
            self.answer({"slept": self.path})
        elif self.path == "/wake_up":
            ASLEEP.clear()
            self.answer({})
        elif ASLEEP.is_set():
            self.answer({"error": {"message": "asleep"}}, 503)
        elif self.path == "/v1/chat/completions":
            self.generate(body, str(body["messages"][-1]["content"]), chat=True)
        elif self.path == "/v1/completions":
            self.generate(body, body["prompt"], chat=False)
        elif self.path == "/v1/embeddings":
            self.answer({"object": "list", "asked": body})
        else:
            self.answer({"detail": "no such path"}, 404)

    def generate(self, body: dict, text: str, *, chat: bool) -> None:
        word = text.split()[0]
        if word == "die":
            print("dying as asked", file=sys.stderr, flush=True)
            os._exit(9)
        if word == "refuse":
            self.answer({"error": {"message": "the prompt is no good", "type": "invalid_request_error"}}, 400)
        elif word == "busy":
            self.answer({"object": "error", "message": "too many"}, 503)
        elif word == "big":
            self.whole(body, "x" * 3_000_000, chat)
        elif word == "slow" and not body.get("stream"):
            time.sleep(0.3)
            self.whole(body, text, chat)
        elif body.get("stream") and word != "whole":
            self.stream(word, text, chat)
        else:
            self.whole(body, text, chat)

    def whole(self, body: dict, text: str, chat: bool) -> None:
        said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        usage = {"prompt_tokens": 3, "completion_tokens": len(text.split()), "total_tokens": 3 + len(text.split())}
        kind = "chat.completion" if chat else "text_completion"
        self.answer({"object": kind, "model": "their-name", "asked": body, "choices": [{"index": 0, **said}], "usage": usage})

    def stream(self, word: str, text: str, chat: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        words = [f"{number} " for number in range(400)] if word == "slow" else text.split(" ")
        for number, each in enumerate(words):
            if word == "slow":
                time.sleep(0.05)
            delta = {"delta": {"content": each}} if chat else {"text": each}
            if not self.event({"model": "their-name", "choices": [{"index": 0, **delta}]}):
                print(f"the client left after {number}", flush=True)
                return
            if number == 1 and word == "break":
                self.wfile.flush()
                self.connection.close()
                return
            if number == 1 and word == "fail":
                self.event({"error": {"message": "out of luck", "code": 500}})
                return
        self.event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": len(words), "total_tokens": 3 + len(words)}})
        self.chunk(b": a comment\r\n\r\ndata: [DONE]\n\n")
        self.chunk(b"")

    def event(self, value: dict) -> bool:
        return self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, data: bytes) -> bool:
        try:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        except OSError:
            self.close_connection = True
            return False
        return True

    def answer(self, value: dict, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


def main() -> None:
    if OPTIONS.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("server pid", os.getpid(), flush=True)
    if OPTIONS.show:
        print("shown", OPTIONS.show, flush=True)
    if OPTIONS.child:
        print("child pid", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
    until = BEGAN + OPTIONS.listen_after
    while time.monotonic() < until:
        print(f"reading weights, {until - time.monotonic():.2f} s left", file=sys.stderr, flush=True)
        time.sleep(0.2)
    if OPTIONS.exit:
        code, _, line = OPTIONS.exit.partition(":")
        print(line, file=sys.stderr, flush=True)
        sys.exit(int(code))
    server: socketserver.BaseServer
    if OPTIONS.socket:
        server = UnixServer(OPTIONS.socket, Handler)
    else:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", OPTIONS.port), Handler)
    server.serve_forever()


if __name__ == "__main__":
    main()
