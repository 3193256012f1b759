"""Branching of one rollout: which turns it examines, and how it forks.

A turn is examined once its first tokens are sampled and before its calls are sent. So a branch
begins at the end of the observation, and the sessions still have the state that they had there. The
log notes the entropy before any fork. A branch begins with that note, so neither it nor a later
life examines the turn again. The entropy at the prompt stays the trajectory's own.

Invariant: however a fork fails, the rollout goes on unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import structlog

from engine.core.branching.budget import Branch, BranchBudget
from engine.core.branching.entropy import branch_decision, entropy
from engine.core.branching.fork import fork
from engine.core.images.media import Media
from engine.core.sampler.policy_sampler import PolicySampler
from engine.core.time_limit import TimeLimit
from engine.core.tools.services import ToolServices, ToolSessions
from engine.core.trajectory.events import Noted
from engine.core.trajectory.log import AttemptLog
from engine.core.trajectory.state import State
from engine.errors import AttemptFailed
from engine.types import Generated, without_fork
from toolwright.types import Event, Task

EXAMINED = "branching"
"""Kind of the note about an examined turn."""

log = structlog.get_logger("branching")


class Brancher:
    """Branching of the rollout that writes the log `attempt`."""

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
        """Number of tokens of a turn that are examined."""
        return self._budget.table.tokens

    @property
    def top_k(self) -> int:
        """Number of log-probs for each of these tokens."""
        return self._budget.table.top_k

    def examines(self) -> bool:
        """Whether the next turn is examined. Tools that cannot be forked end the branching of the
        whole group. A trajectory branches in its first context only."""
        state = self._attempt.state
        if not self._budget.open or state.partial is not None or state.rewrites:
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

    async def examine(
        self,
        head: Generated,
        tool_sessions: ToolSessions,
        media: Mapping[str, Media],
        clock: TimeLimit,
    ) -> None:
        """Notes the entropy of the turn's first tokens, `head`. Forks from the end of the last
        observation as the draws say. media: images by their hashes."""
        table, state = self._budget.table, self._attempt.state
        now = entropy(head.top_logprobs, vocab=self._pool.vocab_size, agg=table.agg)
        if state.turn == 0:
            self._note(EXAMINED, entropy=now)
            return
        first = _seen(state)[0]
        draws = Random(f"{self._budget.seed}/{self._attempt.attempt}/{state.turn}")
        wanted = sum(
            branch_decision(
                h_init=first,
                h_now=now,
                weight=table.weight,
                uniform=draws.random(),
                threshold=table.threshold,
            ).branch
            for _ in range(table.beam - 1)
        )
        self._note(EXAMINED, entropy=now, initial=first, wanted=wanted)
        names = dict.fromkeys(slot.blob.sha256 for slot in state.images)
        shown = [media[name] for name in names if name in media]
        make = partial(self._fork, tool_sessions, shown, clock)
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
        tool_sessions: ToolSessions,
        media: Sequence[Media],
        clock: TimeLimit,
        attempt: str,
    ) -> Branch:
        child, forked = await fork(
            self._tools, self._attempt, tool_sessions, attempt, self._task, media=media, clock=clock
        )
        self._pool.follow(attempt, self._attempt.attempt)
        log.info("branched", attempt=attempt, parent=self._attempt.attempt)
        return Branch(log=child, tool_sessions=forked, media=media)

    def _note(self, kind: str, **data: Any) -> None:
        turn = self._attempt.state.turn
        self._attempt.append(Noted(note=Event(kind=kind, turn=turn, data=data)))


def _seen(state: State) -> dict[int, float]:
    """Entropy of each examined turn."""
    return {
        note.turn: float(note.data["entropy"]) for note in state.events if note.kind == EXAMINED
    }
