"""The sets that agents are measured on, as they are published."""

from __future__ import annotations

from tasks.sets.layout import Layout
from tasks.sets.reshaping import boxed, gaia, gsm8k, olympiad, swe_bench

_ARPO = (
    ("hotpotqa", "HotpotQA: two hops", "200"),
    ("2wiki", "2WikiMultihopQA: two hops and more", "200"),
    ("musique", "MuSiQue: two to four hops", "200"),
    ("bamboogle", "Bamboogle: two hops, none found by one search", "125"),
    ("webwalker", "WebWalkerQA: from page to page", "200"),
    ("xbench", "xbench-DeepSearch", "99"),
    ("simpleqa", "SimpleQA: short facts", "500"),
)
_MATH = (
    ("math500", "MATH-500", "500", "MATH-500, test.jsonl"),
    ("aime24", "AIME 2024", "30", "AIME 2024, as ARPO or Hugging Face has it"),
    ("aime25", "AIME 2025", "30", "AIME 2025, both parts"),
    ("amc23", "AMC 2023", "40", "AMC 2023"),
    ("olympiad", "OlympiadBench: mathematics in English, text only", "675", "OlympiadBench"),
    ("minerva", "Minerva: undergraduate science", "272", "Minerva"),
)


def _solution(name: str) -> tuple[str, ...]:
    """The column that `boxed` reads, in place of an answer."""
    return () if name == "olympiad" else ("solution",)


EVALUATION = (
    *(
        Layout(
            name=name,
            title=title,
            task="deepsearch" if name in ("webwalker", "xbench", "simpleqa") else "qa",
            split="test",
            rows=rows,
            where=f"ARPO, {name}/test.jsonl",
            question=("question",),
            answer=("answer",),
        )
        for name, title, rows in _ARPO
    ),
    Layout(
        name="gsm8k",
        title="GSM8K: word problems of grade school",
        task="math",
        split="test",
        rows="1,319; train 7,473",
        where="GSM8K, test.jsonl or Parquet",
        question=("question",),
        answer=("answer",),
        reshape=gsm8k,
    ),
    *(
        Layout(
            name=name,
            title=title,
            task="math",
            split="test",
            rows=rows,
            where=where,
            question=("problem", "question", "Problem"),
            answer=(
                "answer",
                "Answer",
                "final_answer",
                *_solution(name),
            ),
            id=("id", "ID", "unique_id"),
            extra={"level": ("level",), "subject": ("subject",)},
            reshape=olympiad if name == "olympiad" else boxed,
        )
        for name, title, rows, where in _MATH
    ),
    Layout(
        name="gaia",
        title="GAIA: questions that need several tools, text only",
        task="deepsearch",
        split="test",
        rows="103",
        where="GAIA, validation, its text-only rows",
        question=("Question", "question"),
        answer=("Final answer", "answer"),
        id=("task_id", "id"),
        extra={"level": ("Level", "level")},
        reshape=gaia,
    ),
    Layout(
        name="hle",
        title="Humanity's Last Exam, a text-only part",
        task="deepsearch",
        split="test",
        rows="100",
        where="HLE, as ARPO draws it",
        question=("question",),
        answer=("answer",),
        extra={"category": ("category",)},
    ),
    Layout(
        name="spider",
        title="Spider, and DK, Syn, Realistic in its form: questions over databases",
        task="sql",
        split="test",
        rows="-",
        where="Spider, dev.json",
        question=("SpiderSynQuestion", "question"),
        answer=("query",),
        extra={"database": ("db_id",)},
    ),
    Layout(
        name="spider_prompts",
        title="the same with the schema in the prompt, and a file of SQL<TAB>database",
        task="sql",
        split="test",
        rows="-",
        where="VerlTool, dev_spider.json with dev_gold.sql",
        question=("input_seq",),
        answer=("gold_sql", "output_seq"),
        extra={"database": ("gold_database",)},
        gold=True,
    ),
    Layout(
        name="v_star",
        title="V*: small things in large images",
        task="visual",
        split="test",
        rows="191",
        where="V*, Parquet, with its images unpacked",
        question=("question",),
        answer=("answer",),
        id=("qid",),
        images=("image",),
        extra={"is_video": ("is_video",)},
    ),
    Layout(
        name="swe_bench_verified",
        title="SWE-bench Verified: issues of Python repositories, with their tests",
        task="swe",
        split="test",
        rows="500",
        where="SWE-bench Verified, data/test.parquet",
        question=("problem_statement",),
        answer=("FAIL_TO_PASS", "fail_to_pass"),
        id=("instance_id",),
        extra={
            "image": ("image_name", "docker_image"),
            "repo": ("repo",),
            "base_commit": ("base_commit",),
            "verification": ("instance_id",),
        },
        reshape=swe_bench,
    ),
)
"""In the order in which people look for them."""
