"""Questions on which two evaluations differ most, with both trajectories as text.

Scores come from the rows, texts from samples.jsonl, which has the first trajectories of each suite
(`engine.evaluation.samples`). A question without a text is named all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.offline.evaluate.results.compare import read_scores
from engine.offline.inspect.show import escaped
from engine.serving.json_lines import JsonLines

LONGEST_TEXT = 2000
"""Longest text of a segment for a terminal, in characters."""


def cases(a: Path, b: Path, most: int, *, by: str = "") -> list[dict[str, Any]]:
    """At most `most` questions of both evaluations, the largest difference first, then by suite and
    position. by: part of the reward; "" = the reward.

    Raises StartupError for a folder without an evaluation.
    """
    before, after = read_scores(a, by), read_scores(b, by)
    found = [
        (abs(value - own[key]), suite, key, own[key], value)
        for (suite, source), scored in after.scores.items()
        if (own := before.scores.get((suite, source))) is not None
        for key, value in scored.items()
        if key in own and value != own[key]
    ]
    found.sort(key=lambda one: (-one[0], one[1], one[2][1]))
    chosen = found[:most]
    wanted = {(suite, task_id) for _, suite, (task_id, _), _, _ in chosen}
    texts = [_texts(folder, wanted) for folder in (a, b)]
    return [
        {
            "suite": suite,
            "task_id": key[0],
            "a": {"score": ours, **texts[0].get((suite, key[0]), {})},
            "b": {"score": theirs, **texts[1].get((suite, key[0]), {})},
        }
        for _, suite, key, ours, theirs in chosen
    ]


def lines(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The cases for a terminal; control characters are shown as their escapes."""
    for case in found:
        yield ""
        yield f"{escaped(case['suite'])}, {escaped(case['task_id'])}"
        for side in ("a", "b"):
            own = case[side]
            answers = ", ".join(map(str, own.get("answers", ())))
            right = f"; right: {escaped(answers)}" if answers else ""
            yield f"  {side.upper()}: {own['score']:g}{right}"
            if "segments" not in own:
                yield "     no text: raise engine.evaluation.samples, and evaluate anew"
            for segment in own.get("segments", ()):
                text = escaped(str(segment.get("text")), LONGEST_TEXT)
                yield f"     {segment.get('author')}: {text}"


def _texts(folder: Path, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Answers and segments by suite and task; of several trajectories the one written last."""
    found = {}
    for line in JsonLines(folder / "samples.jsonl").read():
        key = (str(line.get("suite")), str(line.get("task_id")))
        segments, answers = line.get("segments"), line.get("answers")
        if key in wanted and isinstance(segments, list) and isinstance(answers, list):
            whole = [one for one in segments if isinstance(one, Mapping)]
            found[key] = {"answers": answers, "segments": whole}
    return found
