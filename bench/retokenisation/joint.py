"""A recorded sequence beside the ids of its whole text. Pure.

Owns what "changed" means, in three ways:
- by place: ids at the same index are not the same. One token more at the front changes all behind
  it, as it does for whoever pairs ids with log-probs by their index.
- by alignment: ids that are in no common run of both (difflib). What was really cut otherwise.
- by turn: an action and what the tool answered, encoded together, have another id. VerlTool's code
  counts this (`retokenization_diff`).

Knows neither models nor files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import pairwise

import numpy as np

from bench.retokenisation.encoder import Encoder
from toolwright import types as t


@dataclass(frozen=True, kw_only=True)
class Retokened:
    """One sequence, the `sequence`-th of its trajectory.

    ours: as recorded; written: by the policy. joint: the text encoded at once; policy: whether the
    policy wrote the first letter of each. lost: turns, of `turns`, after which the next ids,
    encoded from their text, do not begin with what the policy was shown and wrote. answered: turns
    that a tool answered; cut: those of them of which action and answer, encoded together, have
    another id.
    """

    trajectory: str
    sequence: int
    ours: tuple[int, ...]
    written: tuple[bool, ...]
    joint: tuple[int, ...]
    policy: tuple[bool, ...]
    turns: int
    lost: int
    answered: int
    cut: int

    @property
    def same(self) -> bool:
        return self.ours == self.joint

    @property
    def first(self) -> int | None:
        """The first index at which they differ."""
        if self.same:
            return None
        pairs = zip(self.ours, self.joint, strict=False)
        shorter = min(len(self.ours), len(self.joint))
        return next((place for place, (a, b) in enumerate(pairs) if a != b), shorter)

    @property
    def changed_by_place(self) -> int:
        """Of our ids, those that are not at their index; those beyond the end included."""
        kept = sum(a == b for a, b in zip(self.ours, self.joint, strict=False))
        return len(self.ours) - kept

    @cached_property
    def kept(self) -> np.ndarray:
        """[ours] bool: what an alignment finds again."""
        found = np.zeros(len(self.ours), dtype=bool)
        begin = len(self.ours) if self.first is None else self.first
        found[:begin] = True
        matcher = SequenceMatcher(a=self.ours[begin:], b=self.joint[begin:], autojunk=False)
        for block in matcher.get_matching_blocks():
            found[begin + block.a : begin + block.a + block.size] = True
        return found

    @property
    def changed_by_alignment(self) -> int:
        return int((~self.kept).sum())

    @property
    def changed_of_policy(self) -> int:
        """Of what the policy wrote, by alignment."""
        return int((~self.kept & np.array(self.written, dtype=bool)).sum())


def retokened(trajectory: str, place: int, sequence: t.Sequence, encoder: Encoder) -> Retokened:
    """The `place`-th sequence of a trajectory, and its text: encoded as a whole, and up to every
    turn."""
    ours = tuple(sequence.token_ids)
    text = encoder.decode(ours)
    joint, begins = encoder.encode(text)
    spans = sequence.action_spans
    requests = [encoder.encode(encoder.decode(ours[:start]))[0] for _, start, _ in spans]
    shown = [[*ids, *ours[start:end]] for ids, (_, start, end) in zip(requests, spans, strict=True)]
    following = [*requests[1:], joint]
    answered = [ours[start:after] for (_, start, _), (_, after, _) in pairwise(spans)]
    return Retokened(
        trajectory=trajectory,
        sequence=place,
        ours=ours,
        written=_by_policy(sequence),
        joint=tuple(joint),
        policy=tuple(_policy_at(sequence, encoder, begins)),
        turns=len(requests),
        lost=sum(
            after[: len(before)] != before for before, after in zip(shown, following, strict=False)
        ),
        answered=len(answered),
        cut=sum(tuple(encoder.encode(encoder.decode(turn))[0]) != turn for turn in answered),
    )


def _by_policy(sequence: t.Sequence) -> tuple[bool, ...]:
    return tuple(s.author is t.Author.MODEL for s in sequence.segments for _ in s.token_ids)


def _policy_at(sequence: t.Sequence, encoder: Encoder, begins: Sequence[int]) -> np.ndarray:
    """[begins] bool: whether the policy wrote the letter that stands there."""
    ids: list[int] = []
    ends, writers = [], []
    for segment in sequence.segments:
        ids += segment.token_ids
        ends.append(len(encoder.decode(ids)))
        writers.append(segment.author is t.Author.MODEL)
    places = np.searchsorted(ends, begins, side="right")
    return np.array([*writers, False])[np.minimum(places, len(writers))]
