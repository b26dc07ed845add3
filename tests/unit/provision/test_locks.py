"""Locks as text, and the key of an environment."""

import pytest

from fornada.core.errors import InvalidSpec
from fornada.node.provision.interpreters import Interpreter, own_interpreter
from fornada.node.provision.locks import covers, entries, environment_key, lock_hash, rendered
from fornada.node.provision.requirements import parse_requirements

A, B = "a" * 64, "b" * 64
LOCK = f"""\
# made by hand
tiny==1.0 \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}
    # via something
Other_Thing==2.0+cpu ; python_version >= "3.12" \\
    --hash=sha256:{B}
"""
PYTHON = Interpreter("/usr/bin/python3.11", "3.11.7", "cpython 3.11.7", "x86_64", "glibc 2.36")


def test_a_lock_has_one_form():
    assert rendered(LOCK, where="lock") == (
        f'other-thing==2.0+cpu ; python_version >= "3.12" --hash=sha256:{B}\ntiny==1.0 --hash=sha256:{A} --hash=sha256:{B}\n'
    )
    assert rendered(rendered(LOCK, where="lock"), where="lock") == rendered(LOCK, where="lock")
    assert entries("", where="lock") == ()


def test_equal_locks_in_another_order_are_one_environment():
    one = f"tiny==1.0 --hash=sha256:{A} --hash=sha256:{B}\nother==2.0 --hash=sha256:{B}\n"
    two = f"other==2.0 --hash=sha256:{B}\ntiny==1.0 \\\n  --hash=sha256:{B} \\\n  --hash=sha256:{A}\n"
    assert environment_key(PYTHON, one) == environment_key(PYTHON, two)
    assert lock_hash(one) == lock_hash(two)


@pytest.mark.parametrize(
    "change", [{"path": "/opt/python3.11"}, {"build": "cpython 3.11.8"}, {"machine": "aarch64"}, {"libc": "glibc 2.41"}]
)
def test_another_interpreter_machine_or_libc_is_another_environment(change):
    assert environment_key(PYTHON, LOCK) != environment_key(PYTHON._replace(**change), LOCK)


def test_another_version_or_hash_is_another_environment():
    assert environment_key(PYTHON, LOCK) != environment_key(PYTHON, LOCK.replace("tiny==1.0", "tiny==1.1"))
    assert environment_key(PYTHON, LOCK) != environment_key(PYTHON, LOCK.replace(A, "c" * 64))


@pytest.mark.parametrize(
    "line",
    [
        "tiny==1.0",
        f"tiny>=1.0 --hash=sha256:{A}",
        f"--index-url https://evil.example\ntiny==1.0 --hash=sha256:{A}",
        f"tiny @ https://evil.example/x.whl --hash=sha256:{A}",
        "-e .",
        "tiny==1.0 --hash=md5:00",
        f"tiny==1.0 --hash=sha256:{A} --index-url x",
    ],
)
def test_what_is_no_pinned_and_hashed_package_is_refused(line):
    with pytest.raises(InvalidSpec, match=r"requirements\.lock: .* is refused"):
        entries(line, where="requirements.lock")


@pytest.mark.parametrize("filling", [" " * 1_000_000, f" --hash=sha256:{A}" * 100_000], ids=["spaces", "hashes"])
def test_a_long_line_is_refused_at_once(filling):
    with pytest.raises(InvalidSpec, match="a lock holds NAME==VERSION"):
        entries(f"a==1 ;{filling} x", where="requirements.lock")  # hours, were each place tried where the marker may end


def test_a_lock_covers_what_it_names_in_the_version_asked_for():
    def asked(*lines):
        return parse_requirements(lines, where="x")

    assert covers(LOCK, asked("tiny", "other.thing"), where="lock")
    assert covers(LOCK, asked("Tiny==1.0"), where="lock")
    assert not covers(LOCK, asked("tiny==1.1"), where="lock")
    assert not covers(LOCK, asked("missing"), where="lock")


def test_the_nodes_own_interpreter_is_the_one_behind_its_environment():
    own = own_interpreter()
    assert own.version.startswith("3.")
    assert "/.venv/" not in own.path
