"""What each step costs. Measured and noted (`pytest -s` prints it), never asserted: a machine may be as slow as it likes."""

import statistics

from tests.security.sandbox.cage import Cage

ROUNDS = 9


def test_what_each_step_takes(caged: Cage, record_property):
    results = [caged.run("pass") for _ in range(ROUNDS)]
    steps = {step: statistics.median(result.steps[step] for result in results) for step in results[0].steps}
    steps["fork"] = statistics.median(result.fork_us for result in results)
    steps["all after the fork"] = statistics.median(sum(result.steps.values()) for result in results)
    assert {"make namespaces", "build the root", "change the root", "filter system calls"} <= steps.keys()
    for step, microseconds in steps.items():
        record_property(step, f"{microseconds:.0f} us")
        print(f"{'root' if caged.user is None else 'user'}  {step:26} {microseconds:7.0f} us")
