"""What a model needs works behind all walls: Python's own modules, an interpreter in somebody's home, the runtimes of models."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.test_imports import python_3_9
from tests.models.environments import environment
from tests.models.onnx_file import add_model
from tests.security.sandbox.cage import Cage

MODELS = Path(__file__).parents[3] / "src" / "fornada" / "models"

CALLS = """
import fcntl, json, mmap, os, select, signal, socket, struct, sys, tempfile, threading, time, ctypes
done = []
def tell(name): done.append(name)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'a')
    with open(path, 'w+b') as file:
        file.write(b'x' * 8192); file.flush(); os.fsync(file.fileno())
        os.posix_fallocate(file.fileno(), 0, 16384); os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        with mmap.mmap(file.fileno(), 8192) as mapped: mapped[0] = 1; mapped.flush()
        fcntl.flock(file, fcntl.LOCK_EX); fcntl.fcntl(file, fcntl.F_GETFL)
        os.truncate(path, 10)
    os.chmod(path, 0o600); os.utime(path); os.link(path, path + '2'); os.rename(path + '2', path + '3'); os.stat(path); os.statvfs(folder)
    os.listdir(folder); os.walk(folder); os.symlink('a', path + '4'); os.readlink(path + '4'); os.mkfifo(path + '5')
    with open(path, 'rb') as source, open(path + '6', 'wb') as target:
        os.copy_file_range(source.fileno(), target.fileno(), 5); os.sendfile(target.fileno(), source.fileno(), 0, 5)
tell('files')
memory = os.memfd_create('m'); os.ftruncate(memory, 4096); mmap.mmap(memory, 4096).close(); os.close(memory)
area = mmap.mmap(-1, 1 << 20); area.madvise(mmap.MADV_HUGEPAGE); area.close()
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(4096)
if libc.mlock(buffer, 4096): raise OSError(ctypes.get_errno(), 'mlock')
libc.munlock(buffer, 4096)
def system_call(name, *arguments):
    number = json.loads(sys.argv[1]).get(name)
    if number is not None and libc.syscall(ctypes.c_long(number), *arguments) < 0 and ctypes.get_errno() != 38:
        raise OSError(ctypes.get_errno(), name)
mode = ctypes.c_int(); system_call('get_mempolicy', ctypes.byref(mode), None, 0, None, 0)
system_call('set_mempolicy', 0, None, 0)
system_call('membarrier', 0, 0, 0)
tell('memory')
os.sched_setaffinity(0, os.sched_getaffinity(0)); os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); os.nice(1)
results = []
threads = [threading.Thread(target=lambda: (time.sleep(0.001), results.append(threading.get_native_id()))) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(set(results)) == 8
tell('threads')
left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
read, write = os.pipe()
socket.send_fds(left, [b'x'], [read]); _, (got,), _, _ = socket.recv_fds(right, 10, 1); os.write(write, b'y'); assert os.read(got, 1) == b'y'
poll = select.epoll(); poll.register(left, select.EPOLLIN); right.send(b'z'); assert poll.poll(5)
timer = libc.timerfd_create(time.CLOCK_MONOTONIC, 0); assert timer > 0
event = libc.eventfd(0, 0); assert event > 0
assert libc.inotify_init1(0) > 0
tell('waiting')
hits = []
signal.signal(signal.SIGALRM, lambda *_: hits.append(1)); signal.setitimer(signal.ITIMER_REAL, 0.01)
until = time.monotonic() + 10
while not hits and time.monotonic() < until: time.sleep(0.005)
signal.signal(signal.SIGUSR1, lambda *_: hits.append(2)); os.kill(os.getpid(), signal.SIGUSR1); signal.raise_signal(signal.SIGUSR1)
assert hits == [1, 2, 2]
tell('signals')
with open('/proc/self/comm', 'w') as comm: comm.write('model')
for path in ('/proc/meminfo', '/proc/cpuinfo', '/proc/stat', '/proc/self/maps', '/proc/self/status', '/sys/devices/system/cpu/online'):
    with open(path) as file: assert file.read()
assert os.cpu_count(); os.getloadavg(); os.sysconf('SC_PHYS_PAGES')
import getpass, pwd, locale, ssl, zoneinfo, platform
assert pwd.getpwuid(os.getuid()).pw_name == 'model'
assert os.path.realpath('/dev/stdout').startswith('/') and os.listdir('/dev/fd')
tell('machine')
import dbm, sqlite3
with tempfile.NamedTemporaryFile() as file:
    base = sqlite3.connect(file.name); base.execute('pragma journal_mode=wal'); base.execute('create table a (b)'); base.commit(); base.close()
tell('sqlite')
print(json.dumps(done))
"""

WORKERS = """
import asyncio, json, multiprocessing, os, subprocess, sys
import concurrent.futures, multiprocessing.shared_memory
def square(number): return number * number
if __name__ == '__main__':
    found = {}
    found['subprocess'] = subprocess.run(['/bin/sh', '-c', 'echo $((6 * 7))'], capture_output=True, text=True).stdout.strip()
    code = 'import asyncio; print("from a child")'
    found['python'] = subprocess.run([sys.executable, '-I', '-c', code], capture_output=True, text=True, timeout=60).stdout.strip()
    child = os.fork()
    if child == 0: os._exit(7)
    found['fork'] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    context = multiprocessing.get_context('fork')
    with context.Pool(2) as pool: found['pool'] = pool.map(square, range(4))
    queue = context.Queue(); process = context.Process(target=lambda: queue.put('queued')); process.start()
    found['queue'] = queue.get(timeout=30); process.join()
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor: found['executor'] = list(executor.map(square, range(4)))
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=4096); memory.buf[0] = 3
    other = multiprocessing.shared_memory.SharedMemory(memory.name)
    found['shared'] = other.buf[0]; other.close(); memory.close(); memory.unlink()
    async def both():
        process = await asyncio.create_subprocess_exec('/bin/echo', 'x', stdout=-1)
        return (await process.communicate())[0].decode().strip()
    found['asyncio'] = asyncio.run(both())
    process = subprocess.Popen(['/bin/sleep', '60']); process.terminate(); found['terminated'] = process.wait(timeout=30)
    print(json.dumps(found))
    sys.stdout.flush(); os._exit(0)
"""


def test_pythons_own_modules_work(caged: Cage):
    from fornada_sdk.sandbox import architecture

    numbers = json.dumps({name: architecture.own().numbers[name] for name in ("get_mempolicy", "set_mempolicy", "membarrier")})
    expected = ["files", "memory", "threads", "waiting", "signals", "machine", "sqlite"]
    assert caged.run(CALLS, numbers).said == expected
    assert caged.run(CALLS, numbers, variant="network").said == expected


def test_workers_work(caged: Cage):
    assert caged.run(WORKERS).said == {
        "subprocess": "42",
        "python": "from a child",
        "fork": 7,
        "pool": [0, 1, 4, 9],
        "queue": "queued",
        "executor": [0, 1, 4, 9],
        "shared": 3,
        "asyncio": "x",
        "terminated": -15,
    }


def test_an_environment_starts_whose_interpreter_lies_in_a_home_that_nobody_may_enter(root_cage: Cage):
    """As pyenv's do. The environment's path and its links mean inside what they mean outside."""
    if sys.base_prefix.startswith("/usr") or sys.prefix == sys.base_prefix:
        pytest.skip("the interpreter that runs the tests lies in /usr, or isn't an environment's")
    seen = "import json, sys, msgspec; print(json.dumps([sys.prefix, sys.base_prefix, msgspec.__file__]))"
    python = os.path.join(sys.prefix, "bin", "python")
    inside = root_cage.run(seen, argv=[python, "-I", "-B"], files=[(sys.prefix, "read")]).said
    outside = subprocess.run([python, "-I", "-B", "-c", seen], capture_output=True, text=True, check=True).stdout
    assert inside == json.loads(outside)
    home = "import json, os; print(json.dumps([os.path.exists(os.path.expanduser(path)) for path in %r]))"
    others = [str(Path(sys.base_prefix) / "share"), str(Path.home() / ".bashrc"), str(Path.home() / ".profile")]
    assert not any(root_cage.run(home % others, argv=[python, "-I", "-B"], files=[(sys.prefix, "read")]).said)


def test_the_oldest_interpreter_enters_as_well(root_cage: Cage):
    python = python_3_9()
    if python is None:
        pytest.skip("no Python 3.9 on this machine")
    old = Cage(root_cage.place, os.path.realpath(python), None)
    said = old.run("import json, sys, os; print(json.dumps([list(sys.version_info[:2]), os.getpid(), os.getuid()]))").said
    assert said == [[3, 9], 1, 1000]


def of(model: str) -> Path:
    return environment(MODELS / model / "requirements.lock")


ONNX = """
import json, sys, numpy, onnxruntime
options = onnxruntime.SessionOptions(); options.intra_op_num_threads = 2
session = onnxruntime.InferenceSession(sys.argv[1], options)
a = numpy.arange(4, dtype=numpy.float32).reshape(2, 2)
big = numpy.random.rand(300, 300) @ numpy.random.rand(300, 300)
print(json.dumps([session.run(None, {'a': a, 'b': a})[0].tolist(), bool(big.any())]))
"""
ORDINARY = {
    "mobilenet-v2": "import ai_edge_litert.interpreter, PIL.Image, numpy.random; print('true')",
    "efficientnet-lite0": """
import tensorflow as tf
print('true' if tf.reduce_sum(tf.matmul(tf.ones((64, 64)), tf.ones((64, 64)))).numpy() == 64 ** 3 else 'false')
""",
    "whisper-tiny-en": "import ctranslate2, av, tokenizers, onnxruntime; print('true' if ctranslate2.get_supported_compute_types('cpu') else '0')",
    "smollm2-135m-instruct": "import xllamacpp; print('true' if xllamacpp.CommonParams() else '0')",
    "en-core-web-sm": "import spacy; print('true' if len(spacy.blank('en')('two words')) == 2 else '0')",
    "ppocr-v6": "import cv2, numpy; print('true' if cv2.resize(numpy.zeros((8, 8), 'uint8'), (4, 4)).shape == (4, 4) else '0')",
}


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_onnx_computes_with_two_threads(root_cage: Cage):
    python = of("minilm")
    model = root_cage.folder("model") / "add.onnx"
    model.write_bytes(add_model())
    files = [(python.parents[1], "read"), (model, "read")]
    assert root_cage.run(ONNX, str(model), argv=[str(python), "-I", "-B"], files=files).said == [[[0, 2], [4, 6]], True]


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("model", ORDINARY)
def test_the_runtimes_of_models_work(root_cage: Cage, model: str):
    python = of(model)
    scratch = root_cage.folder("scratch")
    files = [(python.parents[1], "read"), (scratch, "write")]
    env = {"LANG": "C.UTF-8", "HOME": str(scratch), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "TF_ENABLE_ONEDNN_OPTS": "0"}
    result = root_cage.run(ORDINARY[model], argv=[str(python), "-I", "-B"], files=files, env=env)
    assert result.code == 0, (result.failed, result.out)
    assert result.out.splitlines()[-1] == "true", result.out
