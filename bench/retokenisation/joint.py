"""A recorded sequence beside the ids of its whole text. Pure.

Owns three meanings of "changed":
- by place: the ids at one index differ. One more token at the front changes all ids after it, as
  for a trainer that pairs ids with log-probs by their index.
- by alignment: an id is in no common run of both (difflib). These ids were really cut in another
  way.
- by turn: an action and the tool's answer, encoded together, have another id. VerlTool's code
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
    """One recorded sequence and its text encoded at once."""

    trajectory: str
    sequence: int
    """Number of the sequence in its trajectory."""
    ours: tuple[int, ...]
    """Recorded ids."""
    written: tuple[bool, ...]
    """Whether the policy wrote each recorded id."""
    joint: tuple[int, ...]
    """Ids of the whole text."""
    policy: tuple[bool, ...]
    """Whether the policy wrote the first letter of each joint id."""
    turns: int
    lost: int
    """Turns after which the next ids, encoded from their text, do not begin with the prompt and the
    action of the turn."""
    answered: int
    """Turns with a tool's answer."""
    cut: int
    """Answered turns whose action and answer, encoded together, have another id."""

    @property
    def same(self) -> bool:
        return self.ours == self.joint

    @property
    def first(self) -> int | None:
        """First index at which the ids differ."""
        if self.same:
            return None
        pairs = zip(self.ours, self.joint, strict=False)
        shorter = min(len(self.ours), len(self.joint))
        return next((place for place, (a, b) in enumerate(pairs) if a != b), shorter)

    @property
    def changed_by_place(self) -> int:
        """Number of recorded ids that are not at their index, ids beyond the end included."""
        kept = sum(a == b for a, b in zip(self.ours, self.joint, strict=False))
        return len(self.ours) - kept

    @cached_property
    def kept(self) -> np.ndarray:
        """[ours] bool: whether an alignment finds the id."""
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
        """Number of ids of the policy that changed, by alignment."""
        return int((~self.kept & np.array(self.written, dtype=bool)).sum())


def retokened(trajectory: str, place: int, sequence: t.Sequence, encoder: Encoder) -> Retokened:
    """Encodes the text of the `place`-th sequence of a trajectory, as a whole and up to every
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
    """[begins] bool: whether the policy wrote the letter at each index."""
    ids: list[int] = []
    ends, writers = [], []
    for segment in sequence.segments:
        ids += segment.token_ids
        ends.append(len(encoder.decode(ids)))
        writers.append(segment.author is t.Author.MODEL)
    places = np.searchsorted(ends, begins, side="right")
    return np.array([*writers, False])[np.minimum(places, len(writers))]
