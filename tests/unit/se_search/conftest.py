"""The search family's files as modules, as the engine loads them, and trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import Part, part_of
from toolwright.types import (
    Author,
    CallOutcome,
    CallRecord,
    Purpose,
    RewardPart,
    Segment,
    Status,
    StopReason,
    Task,
    Trajectory,
    WeightVersion,
)
from toolwright.types import Sequence as Tokens

FOLDER = Path(__file__).resolve().parents[3] / "recipes/se_search"


@pytest.fixture(scope="session")
def part() -> Part:
    return part_of(FOLDER)


def ran(
    *texts: str,
    gold: str | Sequence[str] = "Paris",
    corrected: Sequence[int] = (),
    made: Sequence[int] | None = None,
    documents: str = "Doc 1(Title: x) y",
    step: int = 0,
    purpose: Purpose = Purpose.TRAIN,
    **fields: Any,
) -> Trajectory:
    """A trajectory that wrote these texts. A text with a </search> was answered with documents,
    except for turns `corrected`; of the last one nothing is observed. made: turns of calls that a
    tool understood, by default all that were answered."""
    last = len(texts) - 1
    answered = [
        turn
        for turn, text in enumerate(texts)
        if turn < last and "</search>" in text and turn not in corrected
    ]
    segments = [Segment(author=Author.PROMPT, token_ids=(1,))]
    version = WeightVersion(lineage="a", step=step)
    for turn, _ in enumerate(texts):
        model = {"author": Author.MODEL, "turn": turn, "weight_version": version}
        segments += [Segment(token_ids=(1,), **model), Segment(token_ids=(2,), **model)]
        if turn in answered:
            segments.append(Segment(author=Author.TOOL, turn=turn, token_ids=(3,)))
        elif turn < last:
            segments.append(Segment(author=Author.SYSTEM, turn=turn, token_ids=(4,)))
    calls = [
        CallRecord(
            call_id=f"c{turn}",
            turn=turn,
            index=0,
            tool="search",
            action=texts[turn],
            outcome=CallOutcome(
                observation=documents, valid=made is None or turn in made, tool="search"
            ),
        )
        for turn in answered
    ]
    golds = (gold,) if isinstance(gold, str) else tuple(gold)
    return Trajectory(
        **{
            "id": "g-0",
            "group_id": "g",
            "task": Task(id="t", answers=golds, purpose=purpose),
            "sequences": (Tokens(id="s", segments=tuple(segments)),),
            "status": Status.COMPLETED,
            "stop_reason": StopReason.ANSWERED,
            "calls": tuple(calls),
            "metadata": {"texts": list(texts)},
            **fields,
        }
    )


def valued(**parts: float) -> dict[str, Any]:
    """Fields of a trajectory with these parts as its reward."""
    listed = tuple(RewardPart(name=name, value=value) for name, value in parts.items())
    return {"reward": sum(parts.values()), "reward_parts": listed}
