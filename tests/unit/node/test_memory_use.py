"""What processes hold, counted on real ones."""

import subprocess
import sys

from fornada.node.memory_use import NOTHING, family, held_by, resident_bytes

MIB = 1024**2
GREEDY = "held = b'\\1' * ({mib} << 20); {more}; print('up', flush=True); input()"


def started(mib, more="pass"):
    process = subprocess.Popen(
        [sys.executable, "-c", GREEDY.format(mib=mib, more=more)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    return process


def test_private_memory_counts_and_goes_with_the_process():
    process = started(50)
    held = held_by(process.pid)
    assert 50 * MIB <= held.bytes < 75 * MIB
    assert held.bytes <= held.peak_bytes
    process.communicate("\n")
    assert (held_by(process.pid), family(process.pid), resident_bytes(process.pid)) == (NOTHING, [], 0)


def test_what_was_given_back_is_in_the_peak():
    process = started(60, "del held")
    held = held_by(process.pid)
    assert held.bytes < 30 * MIB < 60 * MIB <= held.peak_bytes
    process.communicate("\n")


def test_a_child_counts_with_its_parent_and_what_both_share_counts_once():
    process = started(40, "import os; pid = os.fork(); pid or os.read(0, 1)")
    members = family(process.pid)
    assert len(members) == 2 and members[0] == process.pid
    assert 40 * MIB <= held_by(process.pid).bytes < 75 * MIB
    process.communicate("\n\n")
