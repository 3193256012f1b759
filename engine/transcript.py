"""The token record of one trajectory while it grows: append only, budgets kept.

Invariants
- `token_ids` at turn j+1 begins with all of `token_ids` at turn j.
- `used` counts response tokens of both kinds, actions and observations, never above `response`.
- A run of policy tokens becomes one segment a weight version.
"""

from __future__ import annotations

from itertools import groupby

from engine.types import Generated
from toolwright.types import (
    Author,
    FinishKind,
    FinishReason,
    SamplingParams,
    Segment,
    Sequence,
)


class Transcript:
    """One sequence under construction; budgets in tokens (spec 3.2)."""

    def __init__(self, prompt: list[int], *, response: int, model: int) -> None:
        self.token_ids: list[int] = list(prompt)
        self.used = 0
        self._response = response
        self._model = model
        self._segments: list[Segment] = [Segment(author=Author.PROMPT, token_ids=tuple(prompt))]

    @property
    def response_room(self) -> int:
        """Response tokens that may still come."""
        return self._response - self.used

    @property
    def model_room(self) -> int:
        """Tokens that the sampler's context still has."""
        return self._model - len(self.token_ids)

    def append_action(
        self, generated: Generated, *, turn: int, sampling: SamplingParams | None = None
    ) -> None:
        """Adds the policy's tokens of one turn, split where the weight version changes."""
        start = 0
        runs = [(version, len(list(run))) for version, run in groupby(generated.versions)]
        for number, (version, length) in enumerate(runs):
            end = start + length
            last = number == len(runs) - 1
            self._segments.append(
                Segment(
                    author=Author.MODEL,
                    token_ids=generated.token_ids[start:end],
                    logprobs=generated.logprobs[start:end],
                    weight_version=version,
                    turn=turn,
                    trainable=True,
                    sampling=sampling,
                    finish=generated.finish if last else FinishReason(kind=FinishKind.CONTINUED),
                )
            )
            start = end
        self.token_ids.extend(generated.token_ids)
        self.used += len(generated.token_ids)

    def append_observation(
        self, token_ids: list[int], *, turn: int, author: Author = Author.TOOL
    ) -> bool:
        """Adds what the environment said, cut to the room left; True when it fitted whole."""
        room = max(0, min(self.response_room, self.model_room))
        kept = token_ids[:room]
        if kept:
            self._segments.append(Segment(author=author, token_ids=tuple(kept), turn=turn))
            self.token_ids.extend(kept)
            self.used += len(kept)
        return len(kept) == len(token_ids)

    def sequence(self, identity: str) -> Sequence:
        return Sequence(id=identity, segments=tuple(self._segments))
