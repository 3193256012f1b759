"""Token ids of records against what samplers sent.

A request's stream may break, and the engine may have received fewer ids than the server sent. The
next request then holds a prefix of them, and the record is stitched of such prefixes. A life that
was killed may lose its last events: its later requests hold ids that the record lacks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise

from bench.history.derived.contents import WIDTH, common_tokens, packed
from bench.history.derived.publishes import Publishes
from bench.history.derived.stitching import (
    MODEL,
    Request,
    continues,
    model_spans,
    pieces_of,
    reach,
)
from bench.history.events import (
    LifeBegan,
    LifeEnded,
    Loaded,
    Member,
    Offered,
    Planned,
    Published,
    Publishing,
    Sampled,
    Seen,
    WorkerEnded,
)
from bench.history.findings import Findings, Handler, Invariant, Judge

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
    promise="The prompts of one attempt in one process are prefixes of each other.",
    source="engine/core/trajectory/state.py",
)
NEWEST = Invariant(
    name="requests_get_the_newest",
    promise="Recorded tokens of a request that began after a publish are of its version or a later "
    "one.",
    source="ARCHITECTURE.md: a server gets no request before it has loaded the newest version",
)


class Tokens(Judge):
    invariants = (SENT_IDS, HONEST_VERSIONS, NEWEST, PREFIX, GROWING)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._requests: dict[str, list[Request]] = defaultdict(list)
        self._members: dict[str, tuple[int, str, Member]] = {}
        """Trajectory to its first offer's index, its group, and the member."""
        self._lives: list[int] = []
        self._began: list[float] = []
        self._ends: dict[int, tuple[int, bool]] = {}
        """Life to the index of its end, and whether it was killed."""
        self._worker_ends: dict[tuple[int, str], int] = {}
        """Life and worker to the index of the worker's end."""
        self._publishes = Publishes()
        self._knows_begins = False

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {
            LifeBegan: self._life_began,
            LifeEnded: self._life_ended,
            WorkerEnded: self._worker_ended,
            Loaded: self._learn,
            Publishing: self._learn,
            Published: self._learn,
            Sampled: self._sampled,
            Offered: self._offered,
        }

    def _life_began(self, _index: int, event: LifeBegan) -> None:
        self._lives.append(event.life)
        self._began.append(event.at)

    def _life_ended(self, index: int, event: LifeEnded) -> None:
        self._ends[event.life] = index, event.killed

    def _worker_ended(self, index: int, event: WorkerEnded) -> None:
        life = self._lives[-1] if self._lives else 0
        self._worker_ends.setdefault((life, event.worker), index)

    def _learn(self, _index: int, event: Loaded | Publishing | Published) -> None:
        self._publishes.see(event)

    def _sampled(self, index: int, event: Sampled) -> None:
        self._publishes.see(event)
        if not event.attempt:
            return
        began = event.at if event.began is None else event.began
        place = bisect_right(self._began, began) - 1
        life = self._lives[place] if place >= 0 else 0
        self._knows_begins = self._knows_begins or event.began is not None
        behind = event.began is not None and self._publishes.is_behind(event.version, began)
        prompt, sent = packed(event.prompt), packed(event.token_ids)
        self._requests[event.attempt].append(
            Request(index, life, event.worker, prompt, sent, event.version, behind)
        )

    def _offered(self, index: int, event: Offered) -> None:
        for member in event.members:
            self._members.setdefault(member.trajectory, (index, event.group, member))

    def finish(self, last: int) -> None:
        if self.planned.stateful:
            for attempt, requests in self._requests.items():
                self._prompts_grow(attempt, requests)
        for index, group, member in self._members.values():
            about = group, member.attempt or member.trajectory
            content = b"".join(packed(one.token_ids) for one in member.segments)
            if member.attempt and self._requests and content:
                requests = self._requests.get(member.attempt, [])
                self._prompts_are_prefixes(index, about, member, content, requests)
                if self._begins_as_its_parent(index, about, member, content):
                    self._ids_were_sent(index, about, member, content, requests)

    def _prompts_grow(self, attempt: str, requests: list[Request]) -> None:
        of_process: dict[tuple[int, str], list[Request]] = defaultdict(list)
        for request in requests:
            of_process[request.life, request.worker].append(request)
        for (life, _worker), found in of_process.items():
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
        requests: list[Request],
    ) -> None:
        starts = [start for start, _end in model_spans(member)]
        for request in requests:
            end, killed = self._ends.get(request.life, (index, False))
            if killed and end < index:
                continue
            if self._worker_ends.get((request.life, request.worker), index) < index:
                continue
            self.findings.judged(PREFIX)
            if content.startswith(request.prompt):
                continue
            equal = common_tokens(content, request.prompt)
            kept = content  # the last action may be cut off by the trajectory's end
            if end < index or not self.planned.stateful:
                before = bisect_right(starts, equal)
                kept = content[: starts[before - 1] * WIDTH] if before else content
            if not continues(kept, request.prompt, requests):
                self.findings.breaks(
                    PREFIX,
                    max(index, request.index),
                    f"a request of {member.attempt} holds {len(request.prompt) // WIDTH} ids; "
                    f"its record differs from them at token {equal}",
                    *about,
                )

    def _begins_as_its_parent(
        self, index: int, about: tuple[str, str], member: Member, content: bytes
    ) -> bool:
        """The parent's requests brought the first tokens of a branch. A parent that was given up
        has no record to compare with."""
        if member.parent not in self._members:
            return True
        _index, _group, parent = self._members[member.parent]
        self.findings.judged(SENT_IDS)
        shared = b"".join(packed(one.token_ids) for one in parent.segments)
        if shared[: member.shared * WIDTH] == content[: member.shared * WIDTH]:
            return True
        self.findings.breaks(
            SENT_IDS,
            index,
            f"{member.attempt} branches off {member.parent} after {member.shared} tokens, and "
            f"their records differ at token {common_tokens(shared, content)}",
            *about,
            member.parent,
        )
        return False

    def _ids_were_sent(
        self,
        index: int,
        about: tuple[str, str],
        member: Member,
        content: bytes,
        requests: list[Request],
    ) -> None:
        spans = [span for span in model_spans(member) if span[0] >= member.shared]
        pieces = pieces_of(spans, content, requests)
        for number, (start, end) in enumerate(spans):
            self.findings.judged(SENT_IDS)
            reached = reach(start, pieces[number])
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
            if segment.author != MODEL or start == offset or start < member.shared:
                continue
            while spans[number][1] <= start:
                number += 1
            self.findings.judged(HONEST_VERSIONS)
            same = [one for one in pieces[number] if one.request.version == segment.version]
            reached = reach(start, same)
            if reached < offset:
                self.findings.breaks(
                    HONEST_VERSIONS,
                    index,
                    f"tokens {start} to {offset} of {member.attempt} name version "
                    f"{segment.version}; no server with it brought token {reached}",
                    *about,
                )
                return
            if not self._knows_begins:
                continue
            self.findings.judged(NEWEST)
            if reach(start, [one for one in same if not one.request.behind]) < offset:
                self.findings.breaks(
                    NEWEST,
                    index,
                    f"tokens {start} to {offset} of {member.attempt} are of {segment.version}, and "
                    "their request began after a later version had been published",
                    *about,
                    str(segment.version),
                )
