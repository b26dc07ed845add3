"""The probe model: what it does is said by [settings] and by the keys of each request. See SETTINGS and REQUEST_KEYS.

It writes what happens to stdout and to `context.scratch / "probe.log"`, one JSON object a line: {"event": "load" | "loaded" |
"request" | "step", "pid", ...}; of a text to echo its first NOTED characters. Standard library only, Python 3.9.
"""

import atexit
import ctypes
import json
import os
import signal
import sys
import threading
import time
from importlib import metadata

import fornada_sdk
from fornada_sdk import BadRequest

SETTINGS = {
    "load_s": "seconds that loading takes",
    "warmup_s": "seconds that the warm-up takes",
    "stop_s": "seconds that the process takes to end once it was asked to",
    "fail_load_n": "loading fails, when it holds all its memory, as long as the load attempt is at most this; a number or inf",
    "load_progress": "true: tells its progress while loading, ten times a second",
    "hold_mib": "MiB of host memory held from loading on",
    "device_mib": "MiB booked on the device",
    "sleeps": "false: it can only be stopped; true: it sleeps in any case; else it sleeps where it holds device memory",
    "sleep_takes_s": "seconds that falling asleep takes, and waking up again",
    "fail_sleep": "true: falling asleep raises",
    "fail_wake": "true: waking up raises",
    "release_delay_s": "seconds after the process' end until the booked device memory is free",
    "ignore_sigterm": "true: neither SIGTERM nor a polite request ends the process",
}
REQUEST_KEYS = {
    "echo": "any value, returned as echo",
    "sleep_s": "seconds to sleep; looks every 50 ms whether the caller has gone",
    "steps": "a stream of so many items {step}",
    "step_s": "seconds before each item",
    "text": "a stream of one item {response} for each character",
    "die": "true: os._exit(9)",
    "die_at": "in a stream: os._exit(9) in place of this step",
    "segv": "true: reads address 0",
    "nan": "true: returns [NaN, Infinity, -Infinity]",
    "big_out_mb": "returns so many million characters as big",
    "alloc_mib": "MiB of host memory used while the request runs",
    "fork_child": "true: forks a child that stays",
    "poison": "true: every later call raises a CUDA error",
    "bad": "true: raises BadRequest",
    "log_spam": "million bytes written to stdout",
    "pip": "names of packages; returns {name: version or null}",
    "x": "tensors, returned unchanged",
    "n": "",
    "b": "",
    "stream": "the caller wants a stream; the server's business",
}
TENSORS = ("x", "n", "b")
LOOK_S = 0.05
MIB = 1024 * 1024
CHILD_LIVES_S = 600
NOTED = 1000
"""Characters. Its log lies in memory that counts as the model's: long texts, again and again, would end it."""


class Model(fornada_sdk.Model):
    def load(self, context):
        settings = context.settings
        unknown = sorted(set(settings) - set(SETTINGS))
        if unknown:
            raise ValueError(f"the probe has no setting {', '.join(unknown)}; it has {', '.join(SETTINGS)}")
        self.log_file = os.open(context.scratch / "probe.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.lock = threading.Lock()
        self.seq = 0
        self.poisoned = False
        self.who = {"model": context.model, "instance": context.instance, "pid": context.pid, "load_count": context.load_count}
        self.note(event="load", load_attempt=context.load_attempt, load_count=context.load_count)
        if settings.get("ignore_sigterm"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            atexit.register(time.sleep, CHILD_LIVES_S)
        if settings.get("stop_s"):
            atexit.register(time.sleep, float(settings["stop_s"]))
        self.sleep_while_loading(context, float(settings.get("load_s", 0)), bool(settings.get("load_progress")))
        self.hold(context)
        if settings.get("device_mib"):
            delay_s = float(settings.get("release_delay_s", 0))
            context.device.allocate(int(float(settings["device_mib"]) * MIB), release_delay_s=delay_s)
        fail_load_n = float(settings.get("fail_load_n", 0))
        if context.load_attempt <= fail_load_n:
            raise RuntimeError(f"the probe fails load attempt {context.load_attempt} of {fail_load_n:g}")
        self.sleeps = bool(settings.get("sleeps", settings.get("device_mib")))
        self.asleep = False
        self.note(event="loaded", load_count=context.load_count)

    def sleep(self, context):
        """What it booked on the device is given back with it: its weights stay where they are, in host memory. Without a device they go."""
        self.note(event="sleep")
        time.sleep(float(context.settings.get("sleep_takes_s", 0)))
        if context.settings.get("fail_sleep"):
            raise RuntimeError("the probe can't fall asleep")
        if not context.settings.get("device_mib"):
            self.held = b""
        self.asleep = True
        self.note(event="asleep")

    def wake(self, context):
        self.note(event="wake")
        time.sleep(float(context.settings.get("sleep_takes_s", 0)))
        if context.settings.get("fail_wake"):
            raise RuntimeError("the probe can't wake up")
        self.hold(context)
        self.asleep = False
        self.note(event="woken")

    def hold(self, context):
        self.held = b"\1" * int(float(context.settings.get("hold_mib", 0)) * MIB)

    def sleep_while_loading(self, context, load_s, tells_progress):
        began = time.monotonic()
        while True:
            passed_s = time.monotonic() - began
            if passed_s >= load_s:
                return
            if tells_progress:
                context.progress(f"{passed_s:.1f} of {load_s:g} s", passed_s / load_s)
            time.sleep(min(0.1, load_s - passed_s))

    def warmup(self, context):
        time.sleep(float(context.settings.get("warmup_s", 0)))

    def run(self, request, context):
        return self.answer(asked(request), context)

    def run_batch(self, requests, context):
        batch = [asked(request) for request in requests]
        for keys in batch:
            refuse_bad(keys)
        nap(max((number(keys, "sleep_s") for keys in batch), default=0), context)
        return [self.answer({**keys, "sleep_s": 0}, context, batch=len(batch)) for keys in batch]

    def answer(self, keys, context, **more):
        if self.asleep:
            raise RuntimeError("the probe was asked while it slept")
        if self.poisoned:
            raise RuntimeError("CUDA error: device-side assert triggered")
        refuse_bad(keys)
        with self.lock:
            self.seq += 1
            seq = self.seq
        who = {**self.who, "seq": seq}
        echo = keys.get("echo")
        self.note(event="request", seq=seq, request_id=context.request_id, **({"echo": echo[:NOTED]} if isinstance(echo, str) else {}))
        self.harm(keys)
        if "steps" in keys or "text" in keys or "die_at" in keys:
            return self.stream(keys, who, context)
        filling = b"\1" * int(number(keys, "alloc_mib") * MIB)
        nap(number(keys, "sleep_s"), context)
        answer = {name: keys[name] for name in ("echo", *TENSORS) if name in keys}
        answer.update(self.extras(keys))
        if filling:
            answer["allocated_mib"] = len(filling) // MIB
        answer.update(more)
        answer.update(who)
        return answer

    def harm(self, keys):
        if keys.get("log_spam"):
            spam(number(keys, "log_spam"))
        if keys.get("die"):
            os._exit(9)
        if keys.get("segv"):
            ctypes.string_at(0)
        if keys.get("poison"):
            self.poisoned = True

    def extras(self, keys):
        extras = {}
        if keys.get("nan"):
            extras["nan"] = [float("nan"), float("inf"), float("-inf")]
        if keys.get("big_out_mb"):
            extras["big"] = "x" * int(number(keys, "big_out_mb") * 1_000_000)
        if keys.get("pip"):
            extras["pip"] = {name: version_of(name) for name in keys["pip"]}
        if keys.get("fork_child"):
            extras["child"] = fork_child()
        return extras

    def stream(self, keys, who, context):
        step_s = number(keys, "step_s")
        die_at = keys.get("die_at")
        if "steps" in keys or "text" not in keys:
            count = int(number(keys, "steps")) if "steps" in keys else int(die_at) + 1
            items = ({"step": index} for index in range(count))
        else:
            items = ({"response": character} for character in str(keys["text"]))
        for index, item in enumerate(items):
            nap(step_s, context)
            if index == die_at:
                os._exit(9)
            if context.cancelled:
                return
            self.note(event="step", step=index, seq=who["seq"])
            yield {**item, **who}

    def note(self, **fields):
        line = json.dumps({**fields, "pid": self.who["pid"], "time": round(time.time(), 3)}, separators=(",", ":"))
        print(line)
        os.write(self.log_file, line.encode() + b"\n")


def asked(request):
    tensors = request.tensors
    if tensors:
        return {**tensors.parameters, **tensors}
    keys = request.body.json
    if not isinstance(keys, dict):
        raise BadRequest("the probe takes a JSON object")
    return keys


def refuse_bad(keys):
    if keys.get("bad"):
        raise BadRequest("the probe was asked to be bad")


def number(keys, name):
    """A request's number; 0 where it is missing."""
    value = keys.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise BadRequest(f"'{name}' must be a number of at least 0")
    return value


def nap(seconds, context):
    """Sleeps, but for LOOK_S at most once the caller has gone."""
    end = time.monotonic() + seconds
    while not context.cancelled:
        left_s = end - time.monotonic()
        if left_s <= 0:
            return
        time.sleep(min(LOOK_S, left_s))


def spam(megabytes):
    line = "spam " * 200 + "\n"
    for _ in range(int(megabytes * 1_000_000 / len(line))):
        sys.stdout.write(line)


def fork_child():
    """A child that does nothing and goes by itself only after a long time; its pid as this process sees it."""
    child = os.fork()
    if child == 0:
        time.sleep(CHILD_LIVES_S)
        os._exit(0)
    return child


def version_of(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
