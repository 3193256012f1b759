"""Files as their publishers lay them out, with few rows of ours: what a page calls `$RAW`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from PIL import Image

from bench.scripted.images import image_tokens
from tests.integration.verltool.test_whole_recipes import row_of

ROWS = 3
HELD_OUT = 500
"""Rows of DeepMath that no training file has."""

Maker = Callable[[Path], None]


def lines(name: str, file: Path, rows: int = ROWS) -> None:
    """A JSONL file of the set."""
    text = "".join(json.dumps(row_of(name, number)) + "\n" for number in range(rows))
    file.write_text(text, encoding="utf-8")


def listed(name: str, file: Path) -> None:
    """A JSON file with one list."""
    file.write_text(json.dumps([row_of(name, n) for n in range(ROWS)]), encoding="utf-8")


def parquet(name: str, file: Path, rows: int = ROWS) -> None:
    pa.parquet.write_table(pa.Table.from_pylist([row_of(name, n) for n in range(rows)]), file)


def deepmath(folder: Path) -> None:
    folder.mkdir()
    parquet("deepmath", folder / "train-00000-of-00001.parquet", HELD_OUT + ROWS)


def corpus(file: Path) -> None:
    passage = {"id": "0", "contents": '"Ada"\nAda wrote the first program.'}
    file.write_text(json.dumps(passage) + "\n", encoding="utf-8")


def pictures(folder: Path) -> None:
    """A picture of which the scripted sampler and the learner make the same number of tokens."""
    (folder / "a").mkdir(parents=True)
    file = folder / "a/1.png"
    for blue in range(256):
        Image.new("RGB", (56, 56), (9, 9, blue)).save(file)
        if image_tokens(file.read_bytes()) == 4:  # 2 x 2 squares of 28 pixels
            return


def databases(folder: Path) -> None:
    (folder / "bank").mkdir(parents=True)
    with sqlite3.connect(folder / "bank/bank.sqlite") as bank:
        bank.execute("CREATE TABLE people (name TEXT)")
        bank.execute("INSERT INTO people VALUES ('Ada')")
    bank.close()


FLASHRAG = ("nq", "triviaqa", "popqa", "hotpotqa", "2wiki", "musique", "bamboogle")
MATH = ("gsm8k", "math500", "minerva", "olympiad", "aime24", "aime25", "amc23")
MAKERS: Mapping[str, Maker] = {
    **{
        f"flashrag/{name}/{split}.jsonl": partial(lines, f"flashrag_{name}")
        for name in FLASHRAG
        for split in ("train", "dev", "test")
    },
    **{f"{name}/test.jsonl": partial(lines, name) for name in (*MATH, "gaia", "hle")},
    "DeepMath-103K/data": deepmath,
    "search_r1/train.parquet": partial(parquet, "search_r1"),
    **{
        f"arpo/{name}/test.jsonl": partial(lines, name)
        for name in ("hotpotqa", "2wiki", "musique", "bamboogle")
    },
    "grpo_mix_train.parquet": partial(parquet, "tool_star"),
    "wiki-18.jsonl": corpus,
    "skyrl_sql/train.parquet": partial(parquet, "skyrl_sql"),
    "spider/dev.json": partial(listed, "spider"),
    "spider/test.json": partial(listed, "spider"),
    **{f"spider_{name}/dev.json": partial(listed, "spider") for name in ("dk", "syn", "realistic")},
    "databases": databases,
    "PixelReasoner-RL-Data/release.parquet": partial(parquet, "pixel_reasoner"),
    "PixelReasoner-RL-Data/images": pictures,
    "PixelReasoner-RL-Data/videos": pictures,
    "v_star/test.parquet": partial(parquet, "v_star"),
    "v_star/images": pictures,
    "hard_search_1k.parquet": partial(parquet, "hard_search"),
}
"""By path below `$RAW`."""


def fill(raw: Path) -> Path:
    """Makes all files below `raw`, which is returned."""
    for name, make in MAKERS.items():
        path = raw / name
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)
    return raw
