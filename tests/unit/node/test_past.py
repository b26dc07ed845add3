"""How a process ended, in words that say whose fault it was and what to do."""

import pytest

from fornada.core.ports import ExitStatus
from fornada.node.past import crashed, describe_death, describe_end


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (ExitStatus(code=0, signal=None), "exit code 0"),
        (ExitStatus(code=3, signal=None), "exit code 3"),
        (ExitStatus(code=None, signal=11), "ended by SIGSEGV"),
        (ExitStatus(code=None, signal=60), "ended by signal 60"),
        (ExitStatus(code=None, signal=None), "ended, and the process that had forked it didn't say how"),
        (ExitStatus(code=None, signal=9, over_memory=True), "raise [resources] memory in model.toml"),
        (ExitStatus(code=None, signal=9, over_memory=True, with_host=True), "raise [node] packed_memory"),
        (ExitStatus(code=0, signal=None, over_memory=True), "exit code 0"),
    ],
)
def test_an_end_is_told_in_words(status: ExitStatus, words: str):
    assert words in describe_end(status)


def test_an_end_that_nobody_wanted_says_so_where_it_looks_orderly_and_gives_the_last_words():
    orderly, crash = ExitStatus(code=0, signal=None), ExitStatus(code=1, signal=None)
    assert "model code called exit" in describe_death(orderly, last_line="")
    assert describe_death(crash, last_line="ImportError: x") == "exit code 1: ImportError: x"


@pytest.mark.parametrize("over_memory", [False, True])
def test_what_the_killed_had_said_before_isnt_given_as_the_reason(over_memory: bool):
    killed = ExitStatus(code=None, signal=9, over_memory=over_memory)
    assert describe_death(killed, last_line="ImportError: x").endswith("; last line on stderr: ImportError: x")
    assert describe_death(ExitStatus(code=None, signal=11), last_line="Fatal Python error: x") == "ended by SIGSEGV: Fatal Python error: x"


@pytest.mark.parametrize(
    ("status", "is_crash"),
    [
        (ExitStatus(code=0, signal=None), False),
        (ExitStatus(code=0, signal=None, with_host=True), True),
        (ExitStatus(code=1, signal=None), True),
        (ExitStatus(code=None, signal=15), True),
        (ExitStatus(code=None, signal=None), True),
    ],
)
def test_only_who_takes_leave_by_itself_has_not_crashed(status: ExitStatus, is_crash: bool):
    assert crashed(status) is is_crash
