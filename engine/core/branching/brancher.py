"""What one rollout does about branching: which turns it looks at, and how it parts in two.

A turn is looked at once its first tokens are sampled and before its calls go out, so that a branch
parts at the end of the observation and its sessions are as they were there. What was seen is noted
in the log before anything is forked: a branch begins with the note, so neither it nor a later life
looks at that turn again, and the entropy at the prompt is the trajectory's own.

Invariant: whatever a fork meets, the rollout goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import structlog

from engine.core.branching.budget import Branch, BranchBudget
from engine.core.branching.entropy import entropy, verdict
from engine.core.branching.fork import fork
from engine.core.images.media import Media
from engine.core.sampler.policy_sampler import PolicySampler
from engine.core.time_limit import TimeLimit
from engine.core.tools.services import ToolServices
from engine.core.tools.tool_sessions import Environment
from engine.core.trajectory.events import Noted
from engine.core.trajectory.log import AttemptLog
from engine.core.trajectory.state import State
from engine.errors import AttemptFailed
from engine.types import Generated, without_fork
from toolwright.types import Event, Task

LOOKED = "branching"
"""Kind of the note of a turn that was looked at."""

log = structlog.get_logger("branching")


class Brancher:
    """Of the rollout that writes `attempt`."""

    def __init__(
        self,
        budget: BranchBudget,
        attempt: AttemptLog,
        *,
        task: Task,
        tools: ToolServices,
        pool: PolicySampler,
    ) -> None:
        self._budget = budget
        self._attempt = attempt
        self._task = task
        self._tools = tools
        self._pool = pool

    @property
    def tokens(self) -> int:
        """How many tokens of a turn are looked at."""
        return self._budget.table.tokens

    @property
    def top_k(self) -> int:
        """How many log-probs of each."""
        return self._budget.table.top_k

    def looks(self) -> bool:
        """Whether the turn that is about to be sampled is looked at. Tools that cannot be forked
        end the branching of the whole group."""
        state = self._attempt.state
        if not self._budget.open or state.partial is not None:
            return False
        seen = _seen(state)
        if state.turn in seen or (state.turn > 0 and 0 not in seen):
            return False
        fixed = without_fork(state.tools)
        if fixed:
            self._budget.close()
            self._note("branching_denied", tools=fixed)
            log.info("branching_denied", attempt=self._attempt.attempt, tools=fixed)
        return not fixed

    async def look(
        self,
        head: Generated,
        environment: Environment,
        media: Mapping[str, Media],
        clock: TimeLimit,
    ) -> None:
        """Notes how uncertain the policy was over the turn's first tokens, `head`, and branches
        from the end of the last observation as the draws say. `media`: images by their hashes."""
        table, state = self._budget.table, self._attempt.state
        now = entropy(head.top_logprobs, vocab=self._pool.vocab_size, agg=table.agg)
        if state.turn == 0:
            self._note(LOOKED, entropy=now)
            return
        first = _seen(state)[0]
        draws = Random(f"{self._budget.seed}/{self._attempt.attempt}/{state.turn}")
        wanted = sum(
            verdict(
                h_init=first,
                h_now=now,
                weight=table.weight,
                uniform=draws.random(),
                threshold=table.threshold,
            ).branch
            for _ in range(table.beam - 1)
        )
        self._note(LOOKED, entropy=now, initial=first, wanted=wanted)
        names = dict.fromkeys(slot.blob.sha256 for slot in state.images)
        shown = [media[name] for name in names if name in media]
        make = partial(self._fork, environment, shown, clock)
        for _ in range(wanted):
            try:
                if not await self._budget.branch(make):
                    return
            except AttemptFailed as error:
                self._note("branch_refused", error=str(error))
                log.warning("branch_refused", attempt=self._attempt.attempt, error=str(error))
                return

    async def _fork(
        self,
        environment: Environment,
        media: Sequence[Media],
        clock: TimeLimit,
        attempt: str,
    ) -> Branch:
        child, forked = await fork(
            self._tools, self._attempt, environment, attempt, self._task, media=media, clock=clock
        )
        self._pool.follow(attempt, self._attempt.attempt)
        log.info("branched", attempt=attempt, parent=self._attempt.attempt)
        return Branch(log=child, environment=forked, media=media)

    def _note(self, kind: str, **data: Any) -> None:
        turn = self._attempt.state.turn
        self._attempt.append(Noted(note=Event(kind=kind, turn=turn, data=data)))


def _seen(state: State) -> dict[int, float]:
    """The entropy of each turn that was looked at."""
    return {note.turn: float(note.data["entropy"]) for note in state.events if note.kind == LOOKED}
