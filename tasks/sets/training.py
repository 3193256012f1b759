"""The sets that agents are trained on, as they are published."""

from __future__ import annotations

from tasks.sets.layout import HeldOut, Layout
from tasks.sets.reshaping import r2e

_TRUTH = ("reward_model.ground_truth",)
_ABILITY = {"ability": ("ability",), "index": ("extra_info.index",)}

_FLASHRAG = (
    ("nq", "Natural Questions: one hop", "79,168 / 8,757 / 3,610"),
    ("triviaqa", "TriviaQA: one hop", "78,785 / 8,837 / 11,313"),
    ("popqa", "PopQA: one hop, rare entities", "- / - / 14,267"),
    ("hotpotqa", "HotpotQA: two hops", "90,447 / 7,405 / -"),
    ("2wiki", "2WikiMultihopQA: two hops and more", "15,000 / 12,576 / -"),
    ("musique", "MuSiQue: two to four hops", "19,938 / 2,417 / -"),
    ("bamboogle", "Bamboogle: two hops, none found by one search", "- / - / 125"),
)

TRAINING = (
    Layout(
        name="tool_star",
        title="Tool-Star's mix of mathematics and questions with sources",
        task="qa",
        split="train",
        rows="10,000",
        where="Tool-Star, grpo_mix_train.parquet",
        question=("question",),
        answer=_TRUTH,
        kind=("ability",),
        extra=_ABILITY,
    ),
    Layout(
        name="arpo",
        title="the same questions as ARPO writes them: 5,000 math, 5,000 qa",
        task="qa",
        split="train",
        rows="10,000; valid 180",
        where="ARPO, train_10k.parquet and valid.parquet",
        question=("extra_info.question",),
        messages=("prompt",),
        answer=_TRUTH,
        kind=("ability",),
        extra=_ABILITY,
    ),
    Layout(
        name="searl",
        title="SEARL's own file: ARPO's, with how many calls a question needs",
        task="qa",
        split="train",
        rows="not published",
        where="SEARL, train_v4_plan_merged.parquet",
        question=("question", "extra_info.question"),
        messages=("prompt",),
        answer=_TRUTH,
        kind=("ability",),
        extra={
            **_ABILITY,
            "tool_call_count": ("tool_call_count",),
            "mcp_worthiness": ("mcp_worthiness",),
        },
    ),
    Layout(
        name="hard_search",
        title="ARPO's deep search: web questions that one search does not answer",
        task="deepsearch",
        split="train",
        rows="1,071",
        where="ARPO, hard_search_1k.parquet",
        question=("extra_info.question",),
        messages=("prompt",),
        answer=_TRUTH,
        extra=_ABILITY,
    ),
    Layout(
        name="deepmath",
        title="DeepMath-103K: hard mathematics; 500 held out with seed 42",
        task="math",
        split="train",
        rows="103 k",
        where="DeepMath-103K, data/*.parquet",
        question=("question",),
        answer=("final_answer",),
        extra={"difficulty": ("difficulty",), "topic": ("topic",)},
        held_out=HeldOut(rows=500, seed=42),
    ),
    Layout(
        name="search_r1",
        title="NQ and HotpotQA as Search-R1 prepares them",
        task="qa",
        split="train",
        rows="169,615 (79,168 + 90,447); test 51,713",
        where="Search-R1, train.parquet and test.parquet",
        question=("question",),
        messages=("prompt",),
        answer=("reward_model.ground_truth", "golden_answers"),
        id=(),  # both sets number theirs from train_0 on
        extra=_ABILITY,
    ),
    *(
        Layout(
            name=f"flashrag_{name}",
            title=title,
            task="qa",
            split="",
            rows=f"{rows} (train / dev / test)",
            where=f"FlashRAG, {name}/train.jsonl, dev.jsonl, test.jsonl",
            question=("question",),
            answer=("golden_answers",),
        )
        for name, title, rows in _FLASHRAG
    ),
    Layout(
        name="skyrl_sql",
        title="SkyRL-SQL: questions over SQLite databases",
        task="sql",
        split="train",
        rows="653",
        where="SkyRL-SQL, train.parquet; or VerlTool's form of it",
        messages=("prompt",),
        question=("extra_info.question",),
        answer=("reward_spec.ground_truth", "extra_info.gt_sql"),
        extra={"database": ("db_id", "extra_info.db_id"), "index": ("extra_info.index",)},
    ),
    Layout(
        name="pixel_reasoner",
        title="PixelReasoner: images and frames of videos, looked at closely",
        task="visual",
        split="train",
        rows="-",
        where="PixelReasoner-RL-Data, release.parquet, with images.zip and videos.zip unpacked",
        question=("question",),
        answer=("answer",),
        id=("qid",),
        images=("image", "images"),
        videos=("video", "videos"),
        extra={"is_video": ("is_video",)},
    ),
    Layout(
        name="r2e_gym_lite",
        title="R2E-Gym-Lite: commits of Python repositories, with the tests that tell",
        task="swe",
        split="train",
        rows="-",
        where="R2E-Gym-Lite, data/*.parquet",
        question=("problem_statement",),
        answer=("expected_output_json",),
        id=("commit_hash", "docker_image"),
        extra={
            "image": ("docker_image",),
            "repo": ("repo_name",),
            "commit_hash": ("commit_hash",),
            "verification": ("commit_hash", "docker_image"),
        },
        reshape=r2e,
    ),
)
"""In the order in which people look for them."""
