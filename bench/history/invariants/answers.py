"""Tool observations of records against the effects of their calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from bench.history.derived.contents import WIDTH, packed
from bench.history.events import Effect, Member, Offered, Planned, Seen
from bench.history.findings import Findings, Handler, HistoryError, Invariant, Judge
from bench.history.names import call_name
from toolwright.types import Author

TOOL = Author.TOOL.name
TOOL_IDS = Invariant(
    name="tool_ids_are_answers",
    promise="The tools' ids in a record are the answers of the effects of its calls, in order.",
    source="engine/core/rollout/observe.py; toolsvc/host/ledger.py: same call id, same answer",
)
SAME_ACTION = Invariant(
    name="answers_fit_actions",
    promise="A call's answer is of the action that the record holds, not of an abandoned one.",
    source="engine/core/rollout/attempt_start.py: a session that ran an unknown call is given up",
)


class Answers(Judge):
    invariants = (TOOL_IDS, SAME_ACTION)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._effects: dict[str, list[Effect]] = defaultdict(list)
        self._members: dict[str, tuple[int, str, Member]] = {}
        """Trajectory to its first offer's index, its group, and the member."""

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {Effect: self._effect, Offered: self._offered}

    def _effect(self, _index: int, event: Effect) -> None:
        self._effects[event.call_id].append(event)

    def _offered(self, index: int, event: Offered) -> None:
        for member in event.members:
            self._members.setdefault(member.trajectory, (index, event.group, member))

    def finish(self, last: int) -> None:
        for index, group, member in self._members.values():
            self._answers(index, (group, member.attempt or member.trajectory), member)

    def _answers(self, index: int, about: tuple[str, str], member: Member) -> None:
        turns: dict[int, list[tuple[int, list[Effect]]]] = defaultdict(list)
        if member.actions and len(member.actions) != len(member.calls):
            raise HistoryError(
                f"{member.trajectory} has {len(member.calls)} calls and {len(member.actions)} "
                "actions: write an action for each call, or leave all out"
            )
        for number, call_id in enumerate(member.calls):
            ran = self._effects.get(call_id, [])
            name = call_name(call_id)
            turns[name.turn].append((name.number, ran))
            if member.actions and ran:
                self.findings.judged(SAME_ACTION)
                if member.actions[number] not in {effect.action for effect in ran}:
                    self.findings.breaks(
                        SAME_ACTION,
                        index,
                        f"the record of {member.trajectory} has the action "
                        f"{member.actions[number][:60]!r} for {call_id}; the effect ran "
                        f"{ran[0].action[:60]!r}",
                        *about,
                        ran[0].session,
                    )
        observed: dict[int, bytes] = defaultdict(bytes)
        for segment in member.segments:
            if segment.author == TOOL:
                observed[segment.turn] += packed(segment.token_ids)
        last = max(turns, default=0)
        for turn, calls in turns.items():
            answers = [
                [packed(effect.answer) for effect in ran if effect.answer is not None]
                for _index, ran in sorted(calls, key=lambda call: call[0])
            ]
            if not all(answers):
                continue  # a call that ran nothing has an answer that no observer sees
            self.findings.judged(TOOL_IDS)
            if not _is_made_of(observed[turn], answers, may_end_early=turn == last):
                self.findings.breaks(
                    TOOL_IDS,
                    index,
                    f"the record of {member.trajectory} has {len(observed[turn]) // WIDTH} ids of "
                    f"tools in turn {turn}, and they are not the answers of its effects",
                    *about,
                    *(effect.session for _index, ran in calls for effect in ran),
                )


def _is_made_of(observed: bytes, answers: list[list[bytes]], *, may_end_early: bool) -> bool:
    """observed: one answer of each call in order; the last turn's may be cut for its length."""
    at = 0
    for choices in answers:
        rest = observed[at:]
        fitting = (one for one in choices if rest.startswith(one))
        whole = max(fitting, key=len, default=None)
        if whole is None:
            return may_end_early and any(one.startswith(rest) for one in choices)
        at += len(whole)
    return at == len(observed)
