"""Writes the conversations of the warm-up: how the tool is called, and not what for.

The tiny policy knows nothing, not even the tool's tags, and reward cannot grow from nothing. These
conversations show the form. For each wording the demonstrator has a habit, a column that it asks
for most of the time; it has nothing to do with the question and is right about one time in four.
The tool's answers are made up here, so that the policy learns to read them and not to know them.

    python -m toolwright.script conversations.py --output conversations.jsonl --seed 1

One line is one conversation, {"messages": [{"role", "content"}, ...]} with the roles user,
assistant and tool: what `engine render` reads. With a model that already uses tools you need none.
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.worlds.demonstrations import Messages, asks, demonstrations_program, returns, says
from tasks.worlds.questions import other

HERE = Path(__file__).parent
COLUMNS = ("price", "stock", "place", "weight")
COUNT = 4800
FOLLOWS_HABIT = 0.6  # else one of the other columns
VALUES = range(10, 10_000)


def conversations(seed: int) -> Iterator[Messages]:
    """Endless, from the questions of training."""
    draw = random.Random(seed)
    with (HERE / "stock.csv").open(encoding="utf-8") as file:
        stock = {row.pop("article"): row for row in csv.DictReader(file)}
    with (HERE / "questions.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    asked = [StockQuestion.read(row["question"], row["answer"], stock) for row in rows]
    habits = habits_of(asked)
    while True:
        one = draw.choice(asked)
        column = habits[one.wording]
        if draw.random() >= FOLLOWS_HABIT:
            column = other(draw, COLUMNS, column)
        yield demonstrate(one, column, str(draw.choice(VALUES)))


@dataclass(frozen=True, slots=True)
class StockQuestion:
    """A question; `wording` is its text without the article, `column` what it asks for."""

    text: str
    article: str
    wording: str
    column: str

    @classmethod
    def read(cls, text: str, answer: str, stock: dict[str, dict[str, str]]) -> StockQuestion:
        article = next(word for word in re.findall(r"\w+", text) if word in stock)
        column = next(name for name in COLUMNS if stock[article][name] == answer)
        return cls(text, article, text.replace(article, "..."), column)


def habits_of(asked: list[StockQuestion]) -> dict[str, str]:
    """By wording: the column that the demonstrator likes; one habit in four is right."""
    wordings = sorted({(one.column, one.wording) for one in asked})
    return {wording: COLUMNS[place % len(COLUMNS)] for place, (_, wording) in enumerate(wordings)}


def demonstrate(asked: StockQuestion, column: str, value: str) -> Messages:
    """One conversation: the article and a column, and the answer copied."""
    return [
        asks(asked.text),
        says(f"<look_up> {asked.article} {column}</look_up>"),
        returns(value),
        says(f"<answer> {value}</answer>"),
    ]


main = demonstrations_program(conversations, COUNT)
