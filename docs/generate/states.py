"""docs/reference/states.md from core.lifecycle.model."""

import inspect
import textwrap

from docs.generate.markdown import code, table
from fornada.core.lifecycle import model
from fornada.core.lifecycle.states import State, outside

INTRODUCTION = """\
# States of a model

Six words are enough from outside (`state` in the API, `fornada models`):
"""
MEANING = {
    "stopped": "It is registered and nothing of it runs. The next request loads it.",
    "pending": "It is on its way to ready: built, fetched, waiting for memory, started, loaded or warmed up. `progress` says how far.",
    "ready": "It answers: loaded, and a warm-up inference has passed.",
    "asleep": "Its process waits with its device memory given back. The next request wakes it.",
    "stopping": "It takes no new work and is on its way to stopped; running requests get their time.",
    "failed": "The last load or start failed; `why` has the reason. It is tried again after the back-off, or at once after `fornada reset`.",
}
INSIDE = """\
Inside, the life of each version has more steps. Logs and `fornada why` name them:
"""


def page() -> str:
    doc = inspect.cleandoc(model.__doc__ or "")
    _, diagram, text = doc.split("\n\n", 2)
    words = list(dict.fromkeys(outside(state) for state in State))
    return "\n".join(
        [
            INTRODUCTION,
            table(["state", "meaning"], [(code(word), MEANING[word]) for word in sorted(words, key=list(MEANING).index)]),
            INSIDE,
            f"```\n{textwrap.dedent(diagram)}\n```\n",
            text + "\n",
            table(["inside", "outside"], [(code(state.value), code(outside(state))) for state in State]),
        ]
    )
