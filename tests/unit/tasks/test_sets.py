"""Published sets: a file of each layout, made here, read as records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tasks.errors import TaskFault, UnknownName, UnreadableFile, WrongLayout
from tasks.record import Record, line_of
from tasks.sets import SETS, Reading
from tasks.sets.layout import HeldOut, record_of
from tasks.sets.loading import held_out_rows
from tasks.sources import WINDOW, endless, once
from toolwright.imports import load_object
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.reading.task_rows.rows import answers_of

PROMPT = [{"role": "user", "content": "Who?"}]
TRUTH = {"ground_truth": "Ada", "style": "rule"}
GOOD_LINE = b'{"question": "q", "answer": "a"}\n'
SPIDER_PROMPT = "Database Schema: ...\nQuestion: How many?"

LAYOUTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "tool_star": (
        "x.parquet",
        {"data_source": "grpo_mix", "question": "Who?", "ability": "qa", "reward_model": TRUTH,
         "extra_info": {"index": None}},
    ),
    "arpo": (
        "x.parquet",
        {"data_source": "DR_grpo_mix", "prompt": PROMPT, "ability": "qa", "reward_model": TRUTH,
         "extra_info": {"index": 3, "need_tools_kwargs": False,
                        "question": "Who?", "split": "valid"},
         "metadata": None},
    ),
    "searl": (
        "x.parquet",
        {"data_source": "x", "prompt": PROMPT, "question": "Who?", "reward_model": TRUTH,
         "tool_call_count": 2, "mcp_worthiness": 0.5},
    ),
    "hard_search": (
        "x.parquet",
        {"data_source": "DR_nan", "prompt": PROMPT, "reward_model": TRUTH,
         "extra_info": {"index": 3, "question": "Who?"}},
    ),
    "deepmath": (
        "x.parquet",
        {"question": "Who?", "final_answer": "Ada", "difficulty": 5.0, "topic": "Algebra",
         "r1_solution_1": "...", "r1_solution_2": "...", "r1_solution_3": "..."},
    ),
    "search_r1": (
        "x.parquet",
        {"data_source": "nq", "prompt": PROMPT, "ability": "fact-reasoning",
         "reward_model": {"style": "rule", "ground_truth": {"target": ["Ada"]}},
         "extra_info": {"split": "test", "index": 0}, "id": "train_0"},
    ),
    **{
        name: (
            "dev.jsonl",
            {"id": "dev_0", "question": "Who?", "golden_answers": ["Ada"], "metadata": {}},
        )
        for name in SETS if name.startswith("flashrag_")
    },
    "skyrl_sql": (
        "x.parquet",
        {"data_source": "sky", "prompt": PROMPT, "db_id": "bank",
         "reward_spec": {"ground_truth": "Ada"}, "extra_info": {"index": 0, "split": "train"}},
    ),
    "pixel_reasoner": (
        "x.parquet",
        {"question": "Who?", "image": ["a.png", "b.png"], "is_video": True, "answer": ["Ada"],
         "qid": "q1"},
    ),
    "r2e_gym_lite": (
        "x.parquet",
        {"docker_image": "r2e/x:1", "repo_name": "x", "commit_hash": "abc",
         "problem_statement": "[ISSUE]\nWho?\n[/ISSUE]", "parsed_commit_content": "{}",
         "expected_output_json": '{"test_b": "PASSED", "test_a": "FAILED"}'},
    ),
    **{
        name: ("x.jsonl", {"question": "Who?", "answer": ["Ada"]})
        for name in ("hotpotqa", "2wiki", "musique", "bamboogle", "webwalker", "xbench", "simpleqa")
    },
    "gsm8k": ("x.jsonl", {"question": "Who?", "answer": "1 + 1 = 2\n#### 1,002"}),
    "math500": ("x.jsonl", {"problem": "Who?", "solution": "...", "answer": "Ada", "level": 5}),
    "aime24": ("x.parquet", {"ID": "2024-I-1", "Problem": "Who?", "Solution": "", "Answer": 204}),
    "aime25": ("x.jsonl", {"problem": "Who?", "answer": "Ada", "id": 0}),
    "amc23": ("x.jsonl", {"question": "Who?", "answer": 27.0}),
    "olympiad": ("x.jsonl", {"question": "Who?", "final_answer": ["Ada"]}),
    "minerva": ("x.jsonl", {"problem": "Who?", "answer": "Ada"}),
    "gaia": ("x.jsonl", {"task_id": "t1", "Question": "Who?", "Level": 1, "Final answer": "Ada"}),
    "hle": ("x.jsonl", {"question": "Who?", "answer": "Ada", "category": "Math"}),
    "spider": ("x.json", {"question": "Who?", "query": "Ada", "db_id": "bank"}),
    "spider_prompts": ("x.json", {"input_seq": SPIDER_PROMPT, "output_seq": "Ada"}),
    "v_star": ("x.jsonl", {"qid": 7, "question": "Who?", "image": ["a.png"], "answer": "Ada"}),
    "nemotron_swe": (
        "x.jsonl",
        {"responses_create_params": {"metadata": {
            "instance_id": "x__x-1", "dataset_name": "SWE-Gym", "problem_statement": "Who?",
            "golden_patch": "...", "instance_dict": json.dumps({
                "repo": "x/x", "base_commit": "abc", "patch": "...", "test_patch": "...",
                "FAIL_TO_PASS": ["test_b"], "PASS_TO_PASS": ["test_a"]})}}},
    ),
    "harbor": ("x.jsonl", {"id": "bill-1", "instruction": "Who?"}),
    "swe_bench_verified": (
        "x.parquet",
        {"instance_id": "x__x-1", "repo": "x/x", "base_commit": "abc", "problem_statement": "Who?",
         "patch": "...", "test_patch": "...", "FAIL_TO_PASS": '["test_b"]',
         "PASS_TO_PASS": '["test_a"]', "image_name": "swe/x:1"},
    ),
}  # fmt: skip
ANSWERS = {
    "r2e_gym_lite": '{"test_a": "FAILED", "test_b": "PASSED"}',
    "gsm8k": "1002",
    "aime24": "204",
    "amc23": "27",
    "nemotron_swe": '{"test_a": "PASSED", "test_b": "PASSED"}',
    "swe_bench_verified": '{"test_a": "PASSED", "test_b": "PASSED"}',
    "harbor": "bill-1",
    "spider_prompts": "SELECT\t1",
}
EXTRAS: Mapping[str, Mapping[str, Any]] = {
    "searl": {"tool_call_count": 2, "mcp_worthiness": 0.5},
    "deepmath": {"difficulty": 5.0, "topic": "Algebra"},
    "skyrl_sql": {"database": "bank", "index": 0},
    "spider": {"database": "bank"},
    "spider_prompts": {"database": "bank"},
    "r2e_gym_lite": {
        "image": "r2e/x:1", "repo": "x", "commit_hash": "abc", "verification": "abc"
    },
    "nemotron_swe": {"repo": "x/x", "base_commit": "abc", "verification": "x__x-1"},
    "swe_bench_verified": {
        "image": "swe/x:1", "repo": "x/x", "base_commit": "abc", "verification": "x__x-1"
    },
    "harbor": {"verification": "bill-1"},
    "gaia": {"level": 1},
}  # fmt: skip


def written(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    rows = list(rows)
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def gold_of(name: str, folder: Path, rows: int) -> dict[str, Path]:
    if not SETS[name].gold:
        return {}
    path = folder / "gold.sql"
    path.write_text("SELECT\t1\tbank\n" * rows, encoding="utf-8")
    return {"gold": path}


@pytest.mark.parametrize("name", SETS)
def test_a_set_in_its_published_layout(name: str, tmp_path: Path) -> None:
    file, row = LAYOUTS[name]
    path = written(tmp_path / file, [row] * 3)
    records = list(Reading(name, path, **gold_of(name, tmp_path, 3)))
    assert len(records) == (2 if SETS[name].held_out else 3)
    record = records[0]
    assert record.answer == (ANSWERS.get(name, "Ada"),)
    assert record.task == SETS[name].task
    assert record.split
    if name in ("search_r1", "skyrl_sql"):
        assert [dict(message) for message in record.messages] == PROMPT
    else:
        assert record.question == (SPIDER_PROMPT if name == "spider_prompts" else "Who?")
    assert len(record.images) == len(row.get("image", ()))
    for key, value in EXTRAS.get(name, {}).items():
        assert record.extra[key] == value
    said = json.dumps(record.row()["metadata"])
    assert "Ada" not in said, "tools are told the metadata"
    assert "..." not in said, "nor solutions"
    assert record.as_task().answers == record.answer


def test_where_a_record_is_from(tmp_path: Path) -> None:
    def first(name: str) -> Record:
        file, row = LAYOUTS[name]
        return next(iter(Reading(name, written(tmp_path / file, [row, row]))))

    assert first("search_r1").data_source == "nq"
    assert first("search_r1").split == "test"
    assert first("search_r1").id == "search_r1-0", "both of its sets have a train_0"
    assert first("arpo").split == "valid"
    assert first("flashrag_nq").split == "dev"
    assert first("flashrag_nq").id == "dev_0"
    assert first("hotpotqa").id == "hotpotqa-0"
    assert first("gaia").id == "t1"
    assert first("v_star").id == "7"


@pytest.mark.parametrize(
    ("truth", "answer"),
    [
        ("Ada", ("Ada",)),
        ([" Ada ", "Ada", "", "Lovelace"], ("Ada", "Lovelace")),
        (np.array(["Ada", "Lovelace"]), ("Ada", "Lovelace")),
        ({"target": ["Ada"]}, ("Ada",)),
        ({"target": np.array([["Ada"], ["L"]])}, ("Ada", "L")),
        (3, ("3",)),
        (3.0, ("3",)),
        (0.5, ("0.5",)),
        (np.float64(7.0), ("7",)),
        (0, ("0",)),
        (["None"], ("None",)),
    ],
)
def test_a_ground_truth_of_any_kind(truth: Any, answer: tuple[str, ...]) -> None:
    assert answers_of(truth) == answer


@pytest.mark.parametrize("answer", [None, "", "  ", [], [""], [None, " "], float("nan")])
def test_rows_without_an_answer_are_rejected_and_counted(answer: Any, tmp_path: Path) -> None:
    rows = [{"question": "a?", "answer": answer}, {"question": "b?", "answer": "x"}]
    rows += [{"question": " ", "answer": "x"}]
    reading = Reading("hotpotqa", written(tmp_path / "x.jsonl", rows))
    assert [record.question for record in reading] == ["b?"]
    assert reading.rejected == {"no answer": 1, "no question": 1}
    assert "x.jsonl:1" in reading.why_rejected()


def test_a_set_of_which_nothing_is_left_says_so(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", [{"question": "a?", "answer": ""}] * 4)
    with pytest.raises(WrongLayout, match=r"none of 4 rows .* 4 with no answer"):
        list(Reading("hotpotqa", path))
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(WrongLayout, match="there are no rows"):
        list(Reading("hotpotqa", tmp_path / "empty.jsonl"))


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        (
            "hotpotqa",
            {"query": "a"},
            r"hotpotqa: x.jsonl:. has no question .* no answer .*query",
        ),
        ("search_r1", {"prompt": PROMPT}, r"no answer \(looked for reward_model.ground_truth"),
        ("search_r1", {"prompt": 5, "reward_model": TRUTH}, "messages are a list of objects"),
        ("search_r1", {"prompt": PROMPT, "reward_model": {"ground_truth": {"x": 1}}}, '"target"'),
        ("gsm8k", {"question": "a", "answer": "72"}, "####"),
        ("v_star", {"question": "a", "answer": "b"}, "no image"),
        ("v_star", {"question": "a", "answer": "b", "image": [5]}, "an image is a path, bytes or"),
        ("r2e_gym_lite", {"problem_statement": "a", "expected_output_json": "{"}, "no JSON"),
        ("swe_bench_verified", {"problem_statement": "a", "FAIL_TO_PASS": "5"}, "no list of tests"),
        ("hotpotqa", {}, "columns are none"),
    ],
)
def test_a_row_of_another_layout_is_rejected_by_set_row_and_fields(
    name: str, row: Mapping[str, Any], says: str, tmp_path: Path
) -> None:
    good = LAYOUTS[name][1]
    reading = Reading(name, written(tmp_path / "x.jsonl", [good, row, good]))
    assert len(list(reading)) == 2
    assert re.search(says, reading.why_rejected())
    assert "x.jsonl:2" in reading.why_rejected()
    with pytest.raises(WrongLayout, match=says):
        list(Reading(name, written(tmp_path / "x.jsonl", [row])))


PASSED_ALL = '{"a | it shouldn\'t fail": "PASSED", "b | works": "PASSED", "c": "PASSED"}'
PRO = {"instance_id": "i1", "repo": "o/r", "base_commit": "abc", "problem_statement": "Who?"}
OF_MINERVA = {
    "problem": "Who?",
    "solution": "So \\boxed{1} and $\\boxed{\\frac{1}{2}}$.",
    "type": "x",
}


@pytest.mark.parametrize(
    ("name", "row", "question", "answer"),
    [
        (  # SWE-bench Pro: lists as Python prints them, each text in the marks that it needs
            "swe_bench_verified",
            {**PRO, "FAIL_TO_PASS": "[\"a | it shouldn't fail\", 'b | works']",
             "PASS_TO_PASS": "['c']"},
            "Who?",
            PASSED_ALL,
        ),
        (  # in lower-case columns
            "swe_bench_verified",
            {**PRO, "fail_to_pass": "['b']", "pass_to_pass": "['a']"},
            "Who?",
            '{"a": "PASSED", "b": "PASSED"}',
        ),
        (
            "swe_bench_verified",
            {**PRO, "FAIL_TO_PASS": None, "fail_to_pass": ["b"], "pass_to_pass": None},
            "Who?",
            '{"b": "PASSED"}',
        ),
        (
            "swe_bench_verified",
            {**PRO, "fail_to_pass": "['b' 'a']", "PASS_TO_PASS": "[]"},
            "Who?",
            '{"a": "PASSED", "b": "PASSED"}',
        ),
        (
            "spider",
            {"SpiderQuestion": "?", "SpiderSynQuestion": "Who?", "query": "Ada", "db_id": "b"},
            "Who?",
            "Ada",
        ),
        ("minerva", OF_MINERVA, "Who?", "\\frac{1}{2}"),
        ("minerva", {**OF_MINERVA, "answer": None}, "Who?", "\\frac{1}{2}"),
        ("minerva", {**OF_MINERVA, "answer": "3"}, "Who?", "3"),
        ("math500", OF_MINERVA, "Who?", "\\frac{1}{2}"),
        ("olympiad", {"question": "Who?", "final_answer": ["$2$", "$-3$"]}, "Who?", "2, -3"),
        ("olympiad", {"question": "Who?", "final_answer": '["1,2"]'}, "Who?", "1,2"),
        ("olympiad", {"question": "Who?", "final_answer": "['1' '2']"}, "Who?", "1, 2"),
        ("simpleqa", {"question": "Who?", "answer": "['Ada' 'Ada']"}, "Who?", "Ada"),
        ("amc23", {"question": "Who?", "answer": float("nan"), "final_answer": 4.0}, "Who?", "4"),
        (
            "arpo",
            {"prompt": "[{'role': 'user', 'content': 'Who?'}]", "extra_info": "{'index': 3}",
             "reward_model": "{'ground_truth': 'Ada', 'style': 'rule'}"},
            "",
            "Ada",
        ),
    ],
)  # fmt: skip
def test_a_row_in_another_published_form(
    name: str, row: Mapping[str, Any], question: str, answer: str
) -> None:
    record = record_of(SETS[name], row, number=0, where="here")
    assert (record.question, record.answer) == (question, (answer,))
    assert question or [dict(message) for message in record.messages] == PROMPT
    assert answer not in json.dumps(record.extra)


@pytest.mark.parametrize(
    ("name", "row", "kind"),
    [
        ("gaia", {"Question": "q", "Final answer": "17", "file_name": "t1.xlsx"}, "attachment"),
        ("gaia", {"Question": "q", "Final answer": "17", "file_path": "2023/t1.png"}, "attachment"),
        ("gaia", {"Question": "q", "Final answer": "?", "file_name": ""}, "no_answer"),
        ("gaia", {"Question": "q", "Final answer": None, "file_name": None}, "no_answer"),
        ("minerva", {"problem": "q", "solution": "no box"}, "no_answer"),
        ("minerva", {"problem": "q", "solution": "\\boxed{ }"}, "no_answer"),
        ("hotpotqa", {"question": "q", "answer": {"value": "x"}}, "answer"),
    ],
)
def test_a_row_that_cannot_be_judged_is_rejected(
    name: str, row: Mapping[str, Any], kind: str
) -> None:
    with pytest.raises(RowRefused) as caught:
        record_of(SETS[name], row, number=0, where="here")
    assert caught.value.kind == kind


def test_rejected_rows_are_counted_by_reason_and_named(tmp_path: Path) -> None:
    good = {"task_id": "t0", "Question": "q", "Final answer": "1", "file_name": ""}
    rows = [good, {**good, "file_name": "a.xlsx"}, {**good, "Final answer": "?"}]
    reading = Reading("gaia", written(tmp_path / "x.jsonl", [*rows, rows[1]]))
    assert [record.id for record in reading] == ["t0"]
    assert reading.why_rejected() == (
        "2 with attachment, the first is x.jsonl:2: a question about a file that is not in the "
        "row; 1 with no answer, the first is x.jsonl:3: an answer that is kept secret"
    )


def test_a_cell_that_python_cannot_hold_costs_its_row(tmp_path: Path) -> None:
    texts = pa.array([b"a?", b"\xff", b"c?"], pa.binary()).view(pa.string())
    table = pa.table({"question": texts, "answer": ["x", "y", "z"]})
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    reading = Reading("hotpotqa", tmp_path / "x.parquet")
    assert [record.question for record in reading] == ["a?", "c?"]
    assert "row 2: a cell cannot be read" in reading.why_rejected()


def test_a_file_of_another_set_is_not_read_to_its_end(tmp_path: Path) -> None:
    reading = Reading("gsm8k", written(tmp_path / "x.jsonl", [{"problem": "a"}] * 1000))
    with pytest.raises(WrongLayout, match=r"x.jsonl:1 has no question .*Is it the file of another"):
        list(reading)
    assert reading.rejected.total() < 200


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("x.json", b'[{"question": "a"}', "ends inside of its list"),
        ("x.json", b"[{]", "ends inside of its list"),
        ("x.parquet", b"PAR1", "not Parquet"),
        ("x.parquet", b"", "not Parquet"),
        ("x.xlsx", b"", "ends in none of"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_of(
    file: str, content: bytes, says: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UnreadableFile, match=says):
        list(Reading("hotpotqa", tmp_path / file))


@pytest.mark.parametrize(
    ("file", "content", "reason", "says"),
    [
        ("x.jsonl", GOOD_LINE + b'{"question": ', "not json", "x.jsonl:2: not JSON"),
        ("x.jsonl", b"[1]\n" + GOOD_LINE, "not an object", "not list"),
        ("x.jsonl", b'"\xff"\n' + GOOD_LINE, "not utf8", "x.jsonl:1: not UTF-8"),
        ("x.jsonl", b"[" * 100_000 + b"\n" + GOOD_LINE, "not json", ":1: not JSON"),
        ("x.json", b"[1, " + GOOD_LINE + b"]", "not an object", "row 1: .*not int"),
        ("x.csv", b"question,answer\na,b,c\nq,a\n", "cells", "x.csv, row 1: more cells"),
        ("x.csv", b'question,answer\nq,a\n"b"c"d"\n', "no answer", "x.csv, row 2"),
    ],
)
def test_a_row_that_cannot_be_read_costs_no_other(
    file: str, content: bytes, reason: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_bytes(content)
    reading = Reading("hotpotqa", tmp_path / file)
    assert [(record.question, record.answer) for record in reading] == [("q", ("a",))]
    assert reading.rejected == {reason: 1}
    assert re.search(says, reading.why_rejected())


def test_a_cell_as_long_as_a_patch_fits_into_a_table(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("question,answer\n" + "a" * 200_000 + ",b\n", encoding="utf-8")
    (record,) = Reading("hotpotqa", tmp_path / "x.csv")
    assert len(record.question) == 200_000


def test_lists_are_read_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"question": 'a "quoted\\" {[,]}"? \\', "answer": ["x", ["y"]], "more": {"a": [1, {}]}},
        {"question": "é\U0001f600?", "answer": "]"},
    ] * 3
    for pretty in (None, 2):
        (tmp_path / "x.json").write_text(
            json.dumps(rows, indent=pretty, ensure_ascii=False), encoding="utf-8"
        )
        for chunk in (1, 2, 7, 1 << 20):
            monkeypatch.setattr("tasks.sets.rows._CHUNK", chunk)
            found = list(Reading("hotpotqa", tmp_path / "x.json"))
            assert [record.question for record in found] == [row["question"] for row in rows]
    (tmp_path / "x.json").write_text(
        '\ufeff{"question": "a", "answer": "b"}\r\n\r\n', encoding="utf-8"
    )
    assert [record.answer for record in Reading("hotpotqa", tmp_path / "x.json")] == [("b",)]


@pytest.mark.parametrize(
    "row",
    ["q" * 2000 + ",a\n", "q," * 1000 + "a\n", '"q\n",' * 1000 + "a\n", '"' + "q\n" * 1000],
)
def test_a_row_of_csv_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    monkeypatch.setattr("tasks.sets.rows.MOST_ROW_CHARS", 1000)
    (tmp_path / "x.csv").write_text("question,answer\n" + "q,a\n" * 500, encoding="utf-8")
    assert len(list(Reading("hotpotqa", tmp_path / "x.csv"))) == 500
    (tmp_path / "x.csv").write_text("question,answer\nq,a\n" + row, encoding="utf-8")
    with pytest.raises(UnreadableFile, match="a row is longer than 1000 characters"):
        list(Reading("hotpotqa", tmp_path / "x.csv"))


def test_csv_and_a_folder_of_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "2.csv").write_bytes(b'question,answer\r\n"c, ""d""?\nx","3"\r\n')
    (tmp_path / "1.tsv").write_text("question\tanswer\na?\t1\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no set", encoding="utf-8")
    found = list(Reading("simpleqa", tmp_path))
    assert [record.question for record in found] == ["a?", 'c, "d"?\nx']
    assert [record.id for record in found] == ["simpleqa-0", "simpleqa-1"]
    with pytest.raises(UnreadableFile, match="holds no file"):
        (tmp_path / "empty").mkdir()
        Reading("simpleqa", tmp_path / "empty")
    with pytest.raises(UnreadableFile, match="no file"):
        Reading("simpleqa", tmp_path / "gone.jsonl")


def test_the_held_out_rows_are_those_of_hugging_face() -> None:
    found = held_out_rows(HeldOut(rows=500, seed=42), 103_000)
    assert len(found) == 500
    order = np.random.default_rng(42).permutation(103_000)
    assert found == set(order[:500].tolist())
    assert not held_out_rows(HeldOut(rows=500, seed=42), 1)


def test_held_out_rows_are_in_no_training(tmp_path: Path) -> None:
    rows = [{"question": f"{n}?", "final_answer": n} for n in range(1200)]
    written(tmp_path / "a.parquet", rows[:700])
    written(tmp_path / "b.parquet", rows[700:])
    train = [record.question for record in Reading("deepmath", tmp_path)]
    held = [record.question for record in Reading("deepmath", tmp_path, heldout=True)]
    assert (len(train), len(held)) == (700, 500)
    assert set(train).isdisjoint(held)
    with pytest.raises(TaskFault, match="no rows that are held out"):
        Reading("gsm8k", tmp_path, heldout=True)


def test_question_marks(tmp_path: Path) -> None:
    rows = [
        {"question": "who", "golden_answers": ["x"]},
        {"question": "who?", "golden_answers": [1]},
    ]
    path = written(tmp_path / "dev.jsonl", rows)
    found = [record.question for record in Reading("flashrag_nq", path, question_marks=True)]
    assert found == ["who?", "who?"]
    name, row = LAYOUTS["search_r1"]
    with pytest.raises(TaskFault, match=r"row 1 is a finished prompt.*flashrag_nq"):
        next(iter(Reading("search_r1", written(tmp_path / name, [row]), question_marks=True)))


@pytest.mark.parametrize("name", ["tool_star", "arpo", "searl"])
@pytest.mark.parametrize(
    ("ability", "task"),
    [
        ("math", "math"),
        (" QA ", "qa"),
        ("fact-reasoning", "qa"),
        ("", "qa"),
        (None, "qa"),
        (3, "qa"),
    ],
)
def test_a_mixed_set_says_of_each_row_what_it_is(name: str, ability: Any, task: str) -> None:
    row = {**LAYOUTS[name][1], "ability": ability}
    assert record_of(SETS[name], row, number=0, where="here").task == task


@pytest.mark.parametrize("question", [float("nan"), float("inf"), True, False, np.float64("nan")])
def test_what_is_no_question_is_rejected(question: Any) -> None:
    with pytest.raises(ValueError, match="no question"):
        record_of(SETS["hotpotqa"], {"question": question, "answer": "x"}, number=0, where="here")


def test_a_parquet_that_was_cut_off_is_told_of(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet", [LAYOUTS["deepmath"][1]] * 50)
    whole = path.read_bytes()
    spoilt = whole[:-300] + b"\xff" * 292 + whole[-8:]  # pyarrow raises a bare OSError
    for content in (spoilt, whole[:-200], whole[100:], whole[: len(whole) // 2], whole[-50:]):
        path.write_bytes(content)
        with pytest.raises(UnreadableFile, match=r"x.parquet"):
            list(Reading("deepmath", path))


def test_prompts_and_their_gold_file_belong_together(tmp_path: Path) -> None:
    path = written(tmp_path / "x.json", [LAYOUTS["spider_prompts"][1]] * 2)
    with pytest.raises(TaskFault, match="second file"):
        Reading("spider_prompts", path)
    gold = tmp_path / "gold.sql"
    gold.write_text("SELECT 1\tbank\n", encoding="utf-8")
    with pytest.raises(WrongLayout, match=r"gold.sql has fewer rows than .*x.json"):
        list(Reading("spider_prompts", path, gold=gold))
    gold.write_text("SELECT 1 bank\n", encoding="utf-8")
    with pytest.raises(WrongLayout, match=r"gold.sql:1 is no line"):
        list(Reading("spider_prompts", path, gold=gold))
    with pytest.raises(UnreadableFile, match=r"gone.sql"):
        list(Reading("spider_prompts", path, gold=tmp_path / "gone.sql"))
    with pytest.raises(TaskFault, match="one by one"):
        written(tmp_path / "y.json", [LAYOUTS["spider_prompts"][1]])
        Reading("spider_prompts", tmp_path, gold=gold)
    with pytest.raises(TaskFault, match="no second file"):
        Reading("spider", path, gold=gold)


def test_an_unknown_set_is_answered_with_near_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"did you mean .*flashrag_hotpotqa"):
        Reading("HotpotQA", tmp_path)
    with pytest.raises(UnknownName, match="tasks list"):
        Reading("mmlu", tmp_path)


def test_a_source_goes_on_for_ever_in_an_order_of_the_seed(tmp_path: Path) -> None:
    rows = [{"question": f"{n}?", "answer": n} for n in range(WINDOW + 50)]
    path = written(tmp_path / "x.jsonl", rows)

    def drawn(seed: int, count: int) -> list[str]:
        tasks = endless("hotpotqa", path, seed)
        return [next(tasks).prompt for _ in range(count)]

    pass_by_pass = drawn(1, 2 * len(rows))
    assert pass_by_pass == drawn(1, 2 * len(rows))
    first, second = pass_by_pass[: len(rows)], pass_by_pass[len(rows) :]
    assert sorted(first) == sorted(second) == sorted(row["question"] for row in rows)
    assert first != second
    assert first[:50] != drawn(2, 50)
    assert [task.prompt for task in once("hotpotqa", path)] == [row["question"] for row in rows]


def test_a_function_hands_no_images_over(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", [LAYOUTS["v_star"][1]])
    with pytest.raises(TaskFault, match="tasks convert"):
        next(endless("v_star", path, 0))


def test_the_function_source_of_the_docs(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/train/tasks.md").read_text(encoding="utf-8")
    (code,) = (block for block in page.split("```") if block.startswith("python\n# questions.py"))
    (tmp_path / "questions.py").write_text(code.removeprefix("python\n"), encoding="utf-8")
    written(tmp_path / "train.jsonl", [{**LAYOUTS["flashrag_nq"][1], "question": "Who"}] * 2)
    written(tmp_path / "test.jsonl", [LAYOUTS["hotpotqa"][1]])
    training = load_object("./questions.py:training", tmp_path)(3)
    found = [next(training) for _ in range(5)]
    assert [(task.prompt, task.answers) for task in found] == [("Who?", ("Ada",))] * 5
    heldout = load_object("./questions.py:heldout", tmp_path)(3)
    assert [task.prompt for task in heldout] == ["Who?"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("x.json", '[{"question": "a?", "answer": "b"}, {'),
    ],
)
def test_a_row_is_there_before_the_file_is_read_to_its_end(
    file: str, content: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(content, encoding="utf-8")
    records = iter(Reading("hotpotqa", tmp_path / file))
    assert next(records).answer == ("b",)
    with pytest.raises(UnreadableFile):
        next(records)


def test_a_row_as_pandas_has_it() -> None:
    row = {
        "prompt": np.array([{"role": "user", "content": "Who?"}]),
        "reward_model": {"ground_truth": {"target": np.array(["Ada", "Lovelace"])}},
        "extra_info": {"index": np.int64(3), "split": "train"},
    }
    record = record_of(SETS["search_r1"], row, number=0, where="here")
    assert record.answer == ("Ada", "Lovelace")
    assert json.loads(line_of(record.row()))["messages"] == PROMPT
    assert record.extra["index"] == 3


def test_a_visual_question_without_an_image_is_rejected(tmp_path: Path) -> None:
    row = LAYOUTS["v_star"][1]
    reading = Reading("v_star", written(tmp_path / "x.jsonl", [{**row, "image": []}, row]))
    assert len(list(reading)) == 1
    assert reading.rejected == {"no image": 1}


def test_a_source_warns_once_of_what_was_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"question": "a?", "answer": ""}, {"question": "b?", "answer": "x"}]
    path = written(tmp_path / "x.jsonl", rows)
    tasks = endless("hotpotqa", path, 1)
    assert [next(tasks).prompt for _ in range(4)] == ["b?"] * 4
    said = capsys.readouterr()  # other tests may have sent the log to stderr
    assert (said.out + said.err).count("rows were rejected") == 1
    assert len(list(once("hotpotqa", path))) == 1
    said = capsys.readouterr()
    assert "x.jsonl:1" in said.out + said.err
