"""The table of attacks in SECURITY.md, made of what a run saw.

`python -m tests.security.attacks.table` tries every level and user that this machine offers and writes the table between its marks.
"""

import sys
from collections.abc import Mapping, Sequence

from tests.harness.throwaway import REPOSITORY
from tests.security.attacks.judge import Attempt, Outcome, all_attempts
from tests.security.attacks.runs import LEVELS, USERS, Unavailable, outcomes

PAGE = REPOSITORY / "SECURITY.md"
BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"
NOT_YET = "None of the attacks was tried against a level yet."
CELL_LONGEST = 60

Results = Mapping[tuple[str, str], Mapping[tuple[str, str], Outcome]]
"""(level, user) -> (attempt, part) -> outcome"""


def table(attempts: Sequence[Attempt], results: Results) -> str:
    """Markdown: a row for each attempt; a column for each level and user that was tried."""
    tried = list(results)
    head = ["#", "attack", "the wall", *(f"{level}, {user}" for level, user in tried)]
    rows = [head, ["---"] * len(head)]
    for attempt in attempts:
        cells = [_cell(attempt, [results[where][attempt.name, part] for part in attempt.parts]) for where in tried]
        rows.append([f"{attempt.number:02}", attempt.tries, attempt.wall, *cells])
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def _cell(attempt: Attempt, found: Sequence[Outcome]) -> str:
    """What stood in the way: the words of its parts, each once."""
    if any(outcome.broken for outcome in found):
        return "**broken**"
    through = [outcome for outcome in found if outcome.through]
    if through and not attempt.says("ALLOWED"):
        return f"**gets through**: {_short(through[0].how)}"
    if through:
        return "allowed"
    if all(outcome.skip for outcome in found):
        return f"nothing to attack: {_short(found[0].skip)}"
    return _short("; ".join(dict.fromkeys(outcome.how for outcome in found if not outcome.skip)))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CELL_LONGEST else f"{line[: CELL_LONGEST - 1]}…"


def committed() -> str:
    """What stands between the marks in SECURITY.md. Raises ValueError where there are none."""
    text = PAGE.read_text()
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip()


def main() -> None:
    results: dict[tuple[str, str], Mapping[tuple[str, str], Outcome]] = {}
    for level in LEVELS:
        for user in USERS:
            try:
                results[level, user] = outcomes(level, user)
            except Unavailable as error:
                print(f"{level}, {user}: {error}", file=sys.stderr)
    text = PAGE.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(f"{text[:begin]}\n{table(all_attempts(), results) if results else NOT_YET}\n{text[end:]}")


if __name__ == "__main__":
    main()
