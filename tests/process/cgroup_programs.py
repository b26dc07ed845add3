"""Programs that join a group and then behave in one way. Each bounds itself, should the group not hold it.

python -c PROGRAM DESCRIPTOR ...
"""

JOIN = """
import os, sys, time, resource
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for descriptor in map(int, sys.argv[1:]):
    os.write(descriptor, b"0")
    os.close(descriptor)
def say(word):
    os.write(1, f"{word}\\n".encode())
say("joined")
"""
WAITS_FOR_WORDS = """
for line in sys.stdin:
    say("heard " + line.strip())
"""
TAKES_MEMORY = """
taken = []
while len(taken) < 512:
    taken.append(b"x" * (1 << 20))
say("took all")
"""
TAKES_A_MEMORY_FILE = """
file = os.memfd_create("bomb")
for _ in range(512):
    os.write(file, b"x" * (1 << 20))
say("took all")
"""
FORKS = """
made = 0
try:
    while made < 200:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except OSError:
    pass
say(f"made {made}")
time.sleep(60)
"""
FORKS_FOR_EVER = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
end = time.monotonic() + 30
first = True
while time.monotonic() < end:
    try:
        if os.fork() == 0:
            first = False
    except OSError:
        if first:
            say("full")
            first = False
"""
SPINS = """
end = time.monotonic() + 30
while time.monotonic() < end:
    pass
"""
HIDES = """
if os.fork():
    os._exit(0)
os.setsid()
say(os.getpid())
time.sleep(60)
"""
