"""Rows as published files hold them: one reader, whoever asks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from engine.core.tasks.rows import read_task
from toolwright.reading.task_rows.data import data_in
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.reading.task_rows.rows import Columns, answers_of, plain, read_row

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("value", "answers"),
    [
        (["x", None], ("x",)),
        (float("nan"), ()),
        ([float("nan"), None, ""], ()),
        (204.0, ("204",)),
        (1e15, ("1000000000000000",)),
        (0.5, ("0.5",)),
        ([["x", "y"]], ("x", "y")),
        ([[["x"], "x"], "z"], ("x", "z")),
        ({"target": ["Ada", "Ada Lovelace"]}, ("Ada", "Ada Lovelace")),
        ({"target": 3.0}, ("3",)),
        (np.array([["Ada"], ["L"]]), ("Ada", "L")),
        (np.float64(7.0), ("7",)),
        (b"Ada", ("Ada",)),
        (Decimal("2.50"), ("2.50",)),
        (date(2024, 5, 1), ("2024-05-01",)),
        (True, ("True",)),
        # Texts that hold a list, as CSV keeps it.
        ('["x", "y"]', ("x", "y")),
        ("['x', \"it's\"]", ("x", "it's")),
        ("['x' 'y']", ("x", "y")),
        ("['x'\n 'y z']", ("x", "y z")),
        ("['x', None, 5]", ("x", "5")),
        ("[['x', 'y']]", ("x", "y")),
        ("[['a' 'b']\n ['c' 'd']]", ("a", "b", "c", "d")),
        ("{'target': ['x']}", ("x",)),
        ("{'target': array(['x', \"o'n\"], dtype=object)}", ("x", "o'n")),
        # Texts that only look like one.
        ("[0, 1]", ("[0, 1]",)),
        ("(1, 2)", ("(1, 2)",)),
        ("[0, \\infty)", ("[0, \\infty)",)),
        ("[]", ("[]",)),
        ("['x", ("['x",)),
        ('{"sql": "SELECT 1"}', ('{"sql": "SELECT 1"}',)),
        (["['x', 'y']"], ("['x', 'y']",)),
        ("None", ("None",)),
    ],
)
def test_answers_of_every_kind(value: Any, answers: tuple[str, ...]) -> None:
    assert answers_of(value) == answers


@pytest.mark.parametrize("value", [{"x": 1}, object(), [[[[[[[[[["deep"]]]]]]]]]], b"\xff"])
def test_what_is_no_answer_is_refused(value: Any) -> None:
    with pytest.raises(RowRefused):
        answers_of(value)


USER = {"role": "user", "content": "who wrote hamlet?"}


@pytest.mark.parametrize(
    ("row", "prompt", "messages", "answers"),
    [
        # Search-R1, as it is published: three columns with the answer, one with a list inside.
        (
            {
                "question": "who wrote hamlet?",
                "golden_answers": ["William Shakespeare"],
                "prompt": [USER],
                "reward_model": {"style": "rule", "ground_truth": {"target": ["Shakespeare"]}},
            },
            "",
            (USER,),
            ("Shakespeare",),
        ),
        # Two sets in one file: the columns of the other are null.
        ({"question": "a?", "answers": None, "answer": "x"}, "a?", (), ("x",)),
        ({"question": "b?", "answers": ["y"], "answer": None}, "b?", (), ("y",)),
        ({"prompt": None, "question": "c?", "answers": [], "answer": "z"}, "c?", (), ("z",)),
        ({"prompt": float("nan"), "question": "d?", "answer": "z"}, "d?", (), ("z",)),
        ({"prompt": "", "messages": [USER], "answers": [None], "answer": 1.0}, "", (USER,), ("1",)),
        ({"question": "e?", "reward_model": None, "golden_answers": ["g"]}, "e?", (), ("g",)),
        # A table that went through CSV.
        (
            {
                "prompt": "[{'role': 'user', 'content': \"who wrote hamlet?\"}]",
                "reward_model": "{'ground_truth': {'target': array(['x'], dtype=object)}}",
            },
            "",
            (USER,),
            ("x",),
        ),
        (
            {
                "prompt": "[{'content': 'who wrote hamlet?', 'role': 'user'}\n"
                " {'content': \"I don't know\", 'role': 'assistant'}]",
                "answer": "['x' 'y']",
            },
            "",
            (USER, {"role": "assistant", "content": "I don't know"}),
            ("x", "y"),
        ),
        ({"reward_model.ground_truth": "['x']", "prompt": "f?"}, "f?", (), ("x",)),
        ({"messages": "who wrote hamlet?", "answer": "x"}, "", (USER,), ("x",)),
        ({"prompt": 204.0, "answer": 0}, "204", (), ("0",)),
    ],
)
def test_a_row_of_the_engine(
    row: Mapping[str, Any], prompt: str, messages: tuple[Any, ...], answers: tuple[str, ...]
) -> None:
    task = read_task(row, name="n", data_source="s")
    assert (task.prompt, task.messages, task.answers) == (prompt, messages, answers)
    assert (task.id, task.metadata) == ("n", {})


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"prompt": float("nan")}, "no_question"),
        ({"prompt": " \n"}, "no_question"),
        ({"prompt": True}, "no_question"),
        ({"question": None, "messages": []}, "no_question"),
        ({"prompt": "q", "answer": {"x": 1}}, "answer"),
        ({"prompt": "[{'role': 'user', 'content': "}, "messages"),
        ({"prompt": [USER, "text"]}, "messages"),
        ({"prompt": "q", "metadata": "not an object"}, "metadata"),
        ({"prompt": "q", "id": b"\xff"}, "not_utf8"),
        ([], "not_an_object"),
    ],
)
def test_a_bad_row_has_a_kind_and_a_sentence(row: Any, kind: str) -> None:
    with pytest.raises(RowRefused) as caught:
        read_task(row, name="n", data_source="s")
    assert caught.value.kind == kind
    assert len(str(caught.value)) > 10


def test_cells_of_tables_become_texts_and_metadata() -> None:
    row = {
        "id": 3.0, "data_source": float("nan"), "prompt": "q", "level": np.int64(2),
        "rate": float("nan"), "when": date(2024, 5, 1), "raw": b"1", "metadata": "{'db': 'd'}",
    }  # fmt: skip
    task = read_task(row, name="n", data_source="s")
    assert (task.id, task.data_source) == ("3", "s")
    assert task.metadata == {"level": 2, "rate": None, "when": "2024-05-01", "db": "d"}


def test_a_column_that_is_nested_without_end_is_refused() -> None:
    deep: Any = 1
    for _ in range(1000):
        deep = [deep]
    with pytest.raises(RowRefused):
        plain(deep)
    with pytest.raises(RowRefused):
        answers_of(deep)


def test_images_are_paths_or_contents() -> None:
    columns = Columns(question=("q",), images=("image",))
    row = {"q": "?", "image": np.array(["a.png", "b.png"])}
    assert read_row(row, columns).images == ("a.png", "b.png")
    assert read_row({"q": "?", "image": None}, columns).images == ()
    with pytest.raises(RowRefused):
        read_row({"q": "?", "image": [5]}, columns)


@pytest.mark.parametrize(
    "bomb",
    [
        "[" * 300_000,
        "['" * 300_000 + "]",
        "[" + "'a' " * 100_000 + "]",
        "[" + "'" * 300_000 + "]",
        "[" + "'\\'" * 100_000 + "]",
        "[" + "\\" * 300_000 + "]",
        "{" * 300_000 + "}",
        "{" + "' " * 49_000 + "}",
        "{'" + "\\'" * 49_000 + "}",
        "['" + "\\'" * 49_000 + "]",
        "[array(" * 12_000 + "]",
        "['a" + ", dtype=" * 12_000 + "]",
        "[" + "] " * 49_000 + "]",
    ],
    ids=lambda text: text[:8],
)
def test_a_text_that_is_nearly_a_list_is_read_in_linear_time(bomb: str) -> None:
    began = time.process_time()
    answers_of(bomb)
    assert time.process_time() - began < 5


def test_data_in_a_text() -> None:
    assert data_in('{"a": [1, null]}') == {"a": [1, None]}
    assert data_in("{'a': (1, None)}") == {"a": (1, None)}
    assert data_in("[\"a | it shouldn't\", 'b']") == ["a | it shouldn't", "b"]
    assert data_in("['\\u00e9', 'a\\'b']") == ["é", "a'b"]
    long = "[" + ", ".join(f"'test_{n}'" for n in range(20_000)) + "]"
    assert len(data_in(long)) == 20_000
    for text in ("", "open('x')", "{1: 2}", "['\\ud800']", "nan", "[1" + "+1" * 40_000 + "]"):
        with pytest.raises(ValueError):
            data_in(text)
