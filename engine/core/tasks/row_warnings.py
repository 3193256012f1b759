"""Warnings about rows of a file: missing answers, repeated ids, answers in metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from toolwright.types import Task

ANSWERS = ("answer", "answers", "reward_model", "golden_answers")
OTHER_NAMES = ("expected", "gold", "ground_truth", "label", "solution", "target")
"""Other names of the answer in data sets."""
CLOSE = 0.7
"""Similarity from which a column counts as a misspelling."""
GOLD = frozenset((*ANSWERS, *OTHER_NAMES, "correct_answer", "final_answer", "reference_answer"))
"""Names of answers in data sets."""
EQUAL = 0.9
"""Share of rows from which a value of metadata that equals the answer is reported."""
FEWEST_EQUAL = 3
"""Least number of different answers of such a value: a level may be "1" by chance."""
MOST_LEAVES = 100
"""Most values of a row's metadata that are read."""
MOST_PATHS = 1000
MOST_COLUMNS = 200
"""Most columns that are read."""


class RowWarnings:
    """Collects warnings; `look` at each row in order."""

    def __init__(self) -> None:
        self._tasks = self._unanswered = self._twins = 0
        self._ids: set[int] = set()
        self._twin = ""
        self._answered = 0
        self._named: Counter[str] = Counter()
        """Number of rows by path of a value with the name of an answer."""
        self._equal: Counter[str] = Counter()
        """Number of rows by path of a value that equals the answer."""
        self._answers: dict[str, set[str]] = {}
        """The first different answers by path."""
        self._columns: dict[str, None] = {}
        """Other columns of rows without an answer, in order."""

    def look(self, task: Task) -> None:
        self._tasks += 1
        if not task.answers:
            self._unanswered += 1
            if len(self._columns) < MOST_COLUMNS:
                self._columns.update(dict.fromkeys(task.metadata))
        if task.answers:
            self._answered += 1
            self._look_for_answers(task)
        mark = hash(task.id)  # eight bytes a row, however long its id is
        if mark in self._ids:
            self._twins += 1
            self._twin = self._twin or task.id
        self._ids.add(mark)

    def _look_for_answers(self, task: Task) -> None:
        answers = {answer.strip() for answer in task.answers} - {""}
        for path, value in _leaves(task.metadata):
            if len(self._named) + len(self._equal) > MOST_PATHS:
                return
            if path.rpartition(".")[2].lower() in GOLD:
                self._named[path] += 1
            elif value in answers:
                self._equal[path] += 1
                seen = self._answers.setdefault(path, set())
                if len(seen) < FEWEST_EQUAL:
                    seen.add(value)

    def answers_in_metadata(self) -> str:
        """A sentence with the columns; "" without such columns."""
        equal = (
            path
            for path, count in self._equal.items()
            if count >= EQUAL * self._answered and len(self._answers[path]) >= FEWEST_EQUAL
        )
        paths = [*self._named, *equal]
        if not paths:
            return ""
        rows = max(self._named[path] or self._equal[path] for path in paths)
        names = ", ".join(f"metadata.{path}" for path in paths[:3])
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        return (
            f"{rows} of {self._tasks} rows also have their answer in {names}{more}, which tool "
            "services and outside agents get: remove it from the rows, unless one of them needs it"
        )

    def sentences(self) -> list[str]:
        found = []
        if self._unanswered:
            found.append(
                f'{self._unanswered} of {self._tasks} rows have no answer ("answer", "answers" or '
                '"reward_model"): a reward that compares with it gives them 0'
                + _hint(self._columns)
            )
        if self._twins:
            found.append(
                f"{self._twins} of {self._tasks} rows repeat an id, the first is "
                f"{self._twin[:80]!r}: give each row an id of its own"
            )
        return found


def _hint(columns: Iterable[str]) -> str:
    """A hint at a misnamed column of answers; "" without one."""
    for column in columns:
        name = column.strip().lower()
        near = get_close_matches(name, ANSWERS, n=1, cutoff=CLOSE)
        if near or name in OTHER_NAMES:
            meant = near[0] if near else "answer"
            return (
                f"; did you mean {meant!r} for {column[:80]!r}? As a column of another name it is "
                "metadata, which tool services get"
            )
    return ""


def _leaves(metadata: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """(path, text) of texts and numbers in metadata, at most MOST_LEAVES."""
    waiting: list[tuple[str, object]] = list(metadata.items())[:MOST_LEAVES]
    left = MOST_LEAVES
    while waiting and left:
        path, value = waiting.pop(0)
        left -= 1
        match value:
            case None | bool() | "":
                continue
            case str() | int() | float():
                yield path, str(value).strip()
            case Mapping():
                waiting += [(f"{path}.{name}", one) for name, one in value.items()][:left]
            case list() | tuple():
                waiting += [(path, one) for one in value[:left]]
            case _:
                continue
