"""Token ids of records against what samplers sent and tools answered.

A request's stream may break, and the engine may have received fewer ids than the server sent. The
next request then holds a prefix of them, and the record is stitched of such prefixes. A life that
was killed may lose its last events: its later requests hold ids that the record lacks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from bench.history.events import (
    Effect,
    LifeBegan,
    LifeEnded,
    Member,
    Offered,
    Planned,
    Sampled,
    Seen,
)
from bench.history.findings import Findings, Handler, Invariant, Judge
from bench.history.invariants.contents import WIDTH, common_tokens, packed
from bench.history.names import call_name
from toolwright.types import Author, WeightVersion

SENT_IDS = Invariant(
    name="model_ids_were_sent",
    promise="The policy's ids in a record are what samplers sent for its attempt, stitched of "
    "prefixes of what each request brought.",
    source="ARCHITECTURE.md, The record; engine/core/sampler/pool.py",
)
HONEST_VERSIONS = Invariant(
    name="versions_are_honest",
    promise="A segment's weight version is the one that the server had when it sent the tokens.",
    source="proto/toolwright/types.py, Segment",
)
PREFIX = Invariant(
    name="prompts_are_prefixes",
    promise="Each request of a recorded attempt holds the record's first ids and no others.",
    source="ARCHITECTURE.md, The record: ids sent at turn j+1 begin with all ids of turn j",
)
GROWING = Invariant(
    name="prompts_grow",
    promise="The prompts of one attempt in one life are prefixes of each other.",
    source="engine/core/trajectory/state.py",
)
TOOL_IDS = Invariant(
    name="tool_ids_are_answers",
    promise="The tools' ids in a record are the answers of the effects of its calls, in order.",
    source="engine/core/rollout/observe.py; toolsvc/host/ledger.py: same call id, same answer",
)
SAME_ACTION = Invariant(
    name="answers_fit_actions",
    promise="A call's answer is of the action that the record holds, not of an abandoned one.",
    source="engine/core/rollout/opening.py: a session that ran an unknown call is given up",
)

MODEL, TOOL = Author.MODEL.name, Author.TOOL.name


@dataclass(frozen=True, slots=True)
class _Request:
    index: int
    life: int
    prompt: bytes
    sent: bytes
    version: WeightVersion


@dataclass(frozen=True, slots=True)
class _Piece:
    """Tokens [start, end) of a record that one request brought."""

    start: int
    end: int
    version: WeightVersion


class Tokens(Judge):
    invariants = (SENT_IDS, HONEST_VERSIONS, PREFIX, GROWING, TOOL_IDS, SAME_ACTION)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._requests: dict[str, list[_Request]] = defaultdict(list)
        self._effects: dict[str, list[Effect]] = defaultdict(list)
        self._members: dict[str, tuple[int, str, Member]] = {}
        """Trajectory to its first offer's index, its group, and the member."""
        self._lives: list[int] = []
        self._began: list[float] = []
        self._killed: dict[int, int] = {}
        """Killed life to the index of its end."""

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {
            LifeBegan: self._life_began,
            LifeEnded: self._life_ended,
            Sampled: self._sampled,
            Effect: self._effect,
            Offered: self._offered,
        }

    def _life_began(self, _index: int, event: LifeBegan) -> None:
        self._lives.append(event.life)
        self._began.append(event.at)

    def _life_ended(self, index: int, event: LifeEnded) -> None:
        if event.killed:
            self._killed[event.life] = index

    def _sampled(self, index: int, event: Sampled) -> None:
        if not event.attempt:
            return
        began = event.at if event.began is None else event.began
        place = bisect_right(self._began, began) - 1
        life = self._lives[place] if place >= 0 else 0
        self._requests[event.attempt].append(
            _Request(index, life, packed(event.prompt), packed(event.token_ids), event.version)
        )

    def _effect(self, _index: int, event: Effect) -> None:
        self._effects[event.call_id].append(event)

    def _offered(self, index: int, event: Offered) -> None:
        for member in event.members:
            self._members.setdefault(member.trajectory, (index, event.group, member))

    def finish(self, last: int) -> None:
        for attempt, requests in self._requests.items():
            self._prompts_grow(attempt, requests)
        for index, group, member in self._members.values():
            about = group, member.attempt or member.trajectory
            content = b"".join(packed(one.token_ids) for one in member.segments)
            if member.attempt and self._requests and content:
                requests = self._requests.get(member.attempt, [])
                self._prompts_are_prefixes(index, about, member, content, requests)
                self._ids_were_sent(index, about, member, content, requests)
            self._answers(index, about, member)

    def _prompts_grow(self, attempt: str, requests: list[_Request]) -> None:
        of_life: dict[int, list[_Request]] = defaultdict(list)
        for request in requests:
            of_life[request.life].append(request)
        for life, found in of_life.items():
            found.sort(key=lambda one: len(one.prompt))
            for shorter, longer in pairwise(found):
                self.findings.judged(GROWING)
                if not longer.prompt.startswith(shorter.prompt):
                    self.findings.breaks(
                        GROWING,
                        max(shorter.index, longer.index),
                        f"life {life} sent two prompts for {attempt} that differ at token "
                        f"{common_tokens(shorter.prompt, longer.prompt)}",
                        attempt,
                    )
                    break

    def _prompts_are_prefixes(
        self,
        index: int,
        about: tuple[str, str],
        member: Member,
        content: bytes,
        requests: list[_Request],
    ) -> None:
        for request in requests:
            if self._killed.get(request.life, index) < index:
                continue  # the kill may have taken what followed
            self.findings.judged(PREFIX)
            if content.startswith(request.prompt):
                continue
            if not _continues(content, request.prompt, requests):
                self.findings.breaks(
                    PREFIX,
                    max(index, request.index),
                    f"a request of {member.attempt} holds {len(request.prompt) // WIDTH} ids; "
                    f"its record differs from them at token "
                    f"{common_tokens(content, request.prompt)}",
                    *about,
                )

    def _ids_were_sent(
        self,
        index: int,
        about: tuple[str, str],
        member: Member,
        content: bytes,
        requests: list[_Request],
    ) -> None:
        spans = _model_spans(member)
        pieces = _pieces(spans, content, requests)
        for number, (start, end) in enumerate(spans):
            self.findings.judged(SENT_IDS)
            reached = _reach(start, pieces[number])
            if reached < end:
                self.findings.breaks(
                    SENT_IDS,
                    index,
                    f"tokens {start} to {end} of {member.attempt} are recorded as the policy's; "
                    f"no request brought token {reached}",
                    *about,
                )
                return
        offset, number = 0, 0
        for segment in member.segments:
            start, offset = offset, offset + len(segment.token_ids)
            if segment.author != MODEL or start == offset:
                continue
            while spans[number][1] <= start:
                number += 1
            self.findings.judged(HONEST_VERSIONS)
            same = [piece for piece in pieces[number] if piece.version == segment.version]
            reached = _reach(start, same)
            if reached < offset:
                self.findings.breaks(
                    HONEST_VERSIONS,
                    index,
                    f"tokens {start} to {offset} of {member.attempt} name version "
                    f"{segment.version}; no server with it brought token {reached}",
                    *about,
                )
                return

    def _answers(self, index: int, about: tuple[str, str], member: Member) -> None:
        turns: dict[int, list[tuple[int, list[Effect]]]] = defaultdict(list)
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


def _model_spans(member: Member) -> list[tuple[int, int]]:
    """Maximal runs of the policy's tokens within a turn: (start, end)."""
    spans: list[tuple[int, int]] = []
    offset, turn = 0, -1
    for segment in member.segments:
        end = offset + len(segment.token_ids)
        if segment.author == MODEL and end > offset:
            if spans and spans[-1][1] == offset and turn == segment.turn:
                spans[-1] = spans[-1][0], end
            else:
                spans.append((offset, end))
            turn = segment.turn
        offset = end
    return spans


def _pieces(
    spans: list[tuple[int, int]], content: bytes, requests: list[_Request]
) -> list[list[_Piece]]:
    """For each span what requests brought of it, by start."""
    found: list[list[_Piece]] = [[] for _ in spans]
    number = 0
    for request in sorted(requests, key=lambda one: len(one.prompt)):
        start = len(request.prompt) // WIDTH
        while number < len(spans) and spans[number][1] <= start:
            number += 1
        if number == len(spans):
            break
        if start < spans[number][0] or not content.startswith(request.prompt):
            continue
        recorded = content[start * WIDTH : spans[number][1] * WIDTH]
        brought = common_tokens(request.sent, recorded)
        found[number].append(_Piece(start, start + brought, request.version))
    return found


def _continues(content: bytes, prompt: bytes, requests: list[_Request]) -> bool:
    """The prompt is the whole record and a part of an action that never ended."""
    if not prompt.startswith(content):
        return False
    pieces = [
        _Piece(
            len(one.prompt) // WIDTH,
            len(one.prompt) // WIDTH + common_tokens(one.sent, prompt[len(one.prompt) :]),
            one.version,
        )
        for one in sorted(requests, key=lambda one: len(one.prompt))
        if len(content) <= len(one.prompt) < len(prompt) and prompt.startswith(one.prompt)
    ]
    return _reach(len(content) // WIDTH, pieces) * WIDTH >= len(prompt)


def _reach(start: int, pieces: list[_Piece]) -> int:
    """The first token from `start` on that no piece holds. Any prefix of a piece may be used."""
    for piece in pieces:
        if piece.start <= start:
            start = max(start, piece.end)
    return start


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
