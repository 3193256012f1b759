"""Trajectories grouped by what their tasks say of themselves, whatever a stranger wrote there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from console.web.index import label_store, queries
from console.web.index.index import Index
from console.web.index.labels import LONGEST_KEY, LONGEST_VALUE
from console.web.index.queries import BadQuestion, Question
from console.web.measures.split import split
from console.web.telling.tokens import Spellings
from tests.support.recorded_runs import Recorded
from toolwright import types as t

HUGE = "x" * (1 << 20)


@pytest.fixture
def run(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "run")


def indexed(run: Recorded, *members: t.Trajectory) -> Path:
    """The file of an index with these trajectories, a group each."""
    run.journal(*([one] for one in members))
    index = Index(run.folder, run.folder.parent / "i.sqlite", Spellings(run.folder).decoder)
    while index.refresh():
        pass
    index.close()
    return index.file


def labelled(run: Recorded, number: int, step: int = 0, **more: Any) -> t.Trajectory:
    """Of weights of this step; `metadata` and `data_source` are its task's."""
    task = {key: more.pop(key) for key in ("metadata", "data_source") if key in more}
    segment = replace(
        run.segment(t.Author.MODEL, "hi"),
        weight_version=t.WeightVersion(lineage="ab", step=step),
    )
    return run.trajectory(
        f"g{number}-0",
        task=t.Task(id=f"t{number}", prompt="?", **task),
        sequences=(t.Sequence(id=f"g{number}-0.0", segments=(segment,)),),
        **more,
    )


def words(file: Path) -> dict[str, dict[str, int]]:
    labels = queries.choices(file)["labels"]
    return {one["key"]: {word["name"]: word["rows"] for word in one["words"]} for one in labels}


def plots(file: Path, by: str = "") -> dict[str, dict[str, Any]]:
    return {p["key"]: p for s in split(file, by)["sections"] for p in s["plots"]}


def names(file: Path, **question: Any) -> set[str]:
    return {row["name"] for row in queries.page(file, Question(**question)).rows}


def test_words_numbers_and_yes_are_labels_and_rows_are_found_by_them(run: Recorded) -> None:
    file = indexed(
        run,
        labelled(run, 0, data_source="easy", metadata={"hops": 1, "ok": True, "list": [1]}),
        labelled(run, 1, data_source="hard", metadata={"hops": 2.5, "ok": False, "one": "same"}),
        labelled(run, 2, data_source="hard", metadata={"hops": 1, "one": "same", "gone": None}),
    )
    assert words(file) == {
        "data_source": {"hard": 2, "easy": 1},
        "hops": {"1": 2, "2.5": 1},
        "ok": {"no": 1, "yes": 1},
    }
    assert names(file, label="hops", word="1") == {"g0-0", "g2-0"}
    assert names(file, label="data_source", word="hard", suite="training") == {"g1-0", "g2-0"}
    assert names(file, label="data_source", word="' OR 1 --") == set()
    with pytest.raises(BadQuestion, match="come together"):
        names(file, label="hops")


def test_a_stranger_who_writes_much_costs_little(run: Recorded) -> None:
    """A megabyte of a word, thousands of words and of keys: some are cut, the others are none."""
    many = {f"key{n:05}": "a" for n in range(3000)}

    def metadata(n: int) -> dict[str, Any]:
        told = {"id": f"{n}", "a" * 3000: f"{n % 3}", f"k{n}": 1}
        return told if n else told | many

    file = indexed(
        run,
        *(
            labelled(
                run, n, data_source=f"{n % 2}{HUGE}", metadata=metadata(n), masked=n == 99
            )
            for n in range(label_store.MOST_WORDS + 50)
        ),
    )  # fmt: skip
    found = words(file)
    assert "id" not in found, "each row has another one"
    assert found["masked by"] == {"reward": 1}, "what comes after many keys is there all the same"
    assert set(map(len, found["data_source"])) == {LONGEST_VALUE}
    assert sum(found["data_source"].values()) == label_store.MOST_WORDS + 50
    assert sum(found["a" * (LONGEST_KEY - 1) + "…"].values()) == label_store.MOST_WORDS + 50
    assert len(found) <= label_store.SHOWN_KEYS + 1
    assert names(file, label="data_source", word=f"1{HUGE}")
    assert file.stat().st_size < 2 << 20


def test_a_mean_and_its_error_are_those_of_the_rewards(run: Recorded) -> None:
    chance = np.random.default_rng(1)
    rewards = {
        (step, source): chance.normal(1e6, 1.0, size)
        for step, source, size in ((0, "a", 5), (0, "b", 1), (7, "a", 3))
    }
    made = (
        labelled(run, n, step, data_source=source, reward=float(reward))
        for n, (step, source, reward) in enumerate(
            (step, source, one) for (step, source), own in rewards.items() for one in own
        )
    )
    nothing = labelled(run, 99, 7, data_source="a", reward=float("nan"))
    file = indexed(run, *made, nothing)
    lines = {one["name"]: one for one in plots(file)["label:reward:training"]["lines"]}
    for source, line in lines.items():
        for x, y, error in zip(line["x"], line["y"], line["error"], strict=True):
            own = rewards[int(x), source]
            assert y == pytest.approx(own.mean(), rel=1e-5)
            expected = own.std(ddof=1) / len(own) ** 0.5 if len(own) > 1 else 0.0
            assert error == pytest.approx(expected, rel=1e-3)
    assert lines["a"]["x"] == [0.0, 7.0]
    success = plots(file)["label:success:training"]["lines"]
    assert {y for line in success for y in line["y"]} == {1.0}


def test_a_steps_rewards_are_shares_of_bins(run: Recorded) -> None:
    rewards = ((0, 0.0), (0, 1.0), (0, 0.05), (0, 1.0), (4, 0.0), (4, 0.45), (4, float("nan")))
    file = indexed(run, *(labelled(run, n, s, reward=r) for n, (s, r) in enumerate(rewards)))
    (drawn,) = [one for one in plots(file).values() if one["key"] == "rewards"]
    shares = {one["name"]: one["y"] for one in drawn["lines"] if any(one["y"])}
    assert shares == {
        "0 to 0.2": [0.5, 0.333333], "0.4 to 0.6": [0.0, 0.333333], "0.8 to 1": [0.5, 0.0],
    }  # fmt: skip
    assert all(one["x"] == [0.0, 4.0] for one in drawn["lines"])


def test_two_rewards_have_a_bin_each(run: Recorded) -> None:
    file = indexed(run, *(labelled(run, n, 0, reward=float(n > 0)) for n in range(4)))
    lines = plots(file)["rewards"]["lines"]
    assert {one["name"]: one["y"] for one in lines} == {"0": [0.25], "1": [0.75]}


def test_rewards_beyond_squares_spoil_no_page(run: Recorded) -> None:
    rewards = (1e300, 1e300, -1e300, 1e300)
    file = indexed(
        run, *(labelled(run, n, data_source=f"{n % 2}", reward=r) for n, r in enumerate(rewards))
    )
    lines = plots(file)["label:reward:training"]["lines"]
    assert [(one["y"], one["error"]) for one in lines] == [([0.0], [0.0]), ([1e300], [0.0])]


def test_reasons_of_a_mask_are_shares_of_the_steps_trajectories(run: Recorded) -> None:
    def event(*rules: str) -> tuple[t.Event, ...]:
        return (t.Event(kind="stop_rules", turn=0, data={"rules": [*rules], "masked": True}),)

    file = indexed(
        run,
        labelled(run, 0, 1),
        labelled(run, 1, 1, masked=True, events=event("overlong", "void")),
        labelled(run, 2, 1, masked=True, events=event("void")),
        labelled(run, 3, 1, masked=True, status=t.Status.ERRORED),
        labelled(run, 4, 2),
        labelled(run, 5, 2, events=event("void")),
    )
    lines = {one["name"]: one for one in plots(file)["reasons"]["lines"]}
    assert {name: one["y"] for name, one in lines.items()} == {
        "void": [0.5, 0.0], "infrastructure": [0.25, 0.0], "overlong": [0.25, 0.0],
    }  # fmt: skip
    assert lines["void"]["x"] == [1.0, 2.0]
    assert names(file, label="masked by", word="void") == {"g1-0", "g2-0"}


def test_a_question_that_was_asked_again_is_drawn_with_its_newer_reward(run: Recorded) -> None:
    sources = [{"index": n, "data_source": f"{n}", "errored": "down" if n else ""} for n in (0, 1)]
    run.rows("held", 3, sources)
    run.rows("held", 3, [{"index": 1, "data_source": "1", "reward": 0.25}])
    lines = plots(indexed(run))["label:reward:held"]["lines"]
    assert {one["name"]: one["y"] for one in lines} == {"0": [1.0], "1": [0.25]}
    assert words(run.folder.parent / "i.sqlite")["data_source"] == {"0": 1, "1": 1}
