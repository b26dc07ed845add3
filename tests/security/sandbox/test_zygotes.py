"""Instances that a zygote forks: it has rights in a user namespace that was made for it, and its children none."""

import json
import os

from tests.security.sandbox.cage import INSTANCE_UID, Cage
from tests.security.sandbox.test_walls import READ, WRITE, attempt
from tests.security.sandbox.test_work import CALLS, WORKERS

WHO = attempt("""
status = dict(line.rstrip('\\n').split(':\\t', 1) for line in open('/proc/self/status'))
with open(sys.argv[1] + '/written', 'w') as file: file.write('x')
return [os.getpid(), os.getuid(), [name for name in os.listdir('/proc') if name.isdigit()], os.uname().nodename,
        [status[name] for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp')]]
""")
NONE = "0" * 16


def test_a_zygotes_child_is_behind_the_same_walls(caged: Cage):
    scratch, bundle = caged.folder("scratch"), caged.folder("bundle")
    os.chown(scratch, caged.uid + 7 if caged.user is None else caged.uid, -1)
    path = caged.file(bundle, "weights", "1")
    bundle.chmod(0o755)
    files = [(scratch, "write"), (bundle, "read")]
    said = caged.run(WHO, str(scratch), zygote=True, files=files).said
    assert said == [1, 1000, ["1"], "model", [NONE, NONE, NONE, NONE, NONE, "1", "2"]]
    owner = (scratch / "written").stat().st_uid
    assert owner == (INSTANCE_UID + 7 if caged.user is None else caged.uid), "one of the zygote's block of uids"
    assert caged.run(READ, str(path), zygote=True, files=files).said == "1"
    assert caged.run(WRITE, str(path), zygote=True, files=files).said == "EROFS"
    assert caged.run(READ, "/etc/shadow", zygote=True, files=files).said == "ENOENT"
    assert caged.run(READ, str(path), zygote=True).said == "ENOENT"


def test_what_works_in_an_instance_works_in_a_zygotes_child(caged: Cage):
    assert len(caged.run(CALLS, json.dumps({}), zygote=True).said) == 7
    assert caged.run(WORKERS, zygote=True).said == caged.run(WORKERS).said


def test_a_zygotes_child_may_have_a_loopback(caged: Cage):
    code = attempt("""
import socket
with socket.create_server(('127.0.0.1', 0)) as listener, socket.create_connection(listener.getsockname()) as client: return 'connected'
""")
    assert caged.run(code, zygote=True, loopback=True, variant="network").said == "connected"
    assert caged.run(code, zygote=True, variant="network").said in ("EADDRNOTAVAIL", "ENETUNREACH")


def test_a_zygotes_mounts_stay_read_only(caged: Cage):
    assert caged.run("", zygote="hostile").said == "EPERM"
    assert caged.run("", zygote="hostile", without=("zygote's filter",)).said == "writable", "its filter is what keeps them so"
