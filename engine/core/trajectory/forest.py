"""The model calls of an outside agent: completions that begin where earlier ones end. Pure.

A completion is a node. It is open until `Replied` accepts it, and `Dropped` removes it. A later
call goes on from an accepted node, or begins a new root.

Invariants
- The ids of a prompt are the parent's first `shared` ids and the call's own. So the sampler read a
  prefix of the record, whatever other calls did meanwhile.
- Sequences are derived. The first call that continues a node at its end continues its sequence.
  Every other call opens a sequence, in which the shared tokens are not trainable. So an accepted
  completion is trainable in one sequence at most.
- Nodes are accepted in one order, that of their turns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields

import msgspec
from msgspec.structs import replace

from engine.core.trajectory.chain import Chain, common_prefix, shared_segments
from engine.core.trajectory.events import Acted, Asked, Begun, Dropped, Replied, Streamed
from engine.core.trajectory.partials import with_part
from engine.types import Generated
from toolwright.types import Ids, Segment, ids, segments_after

ID_BYTES, ACTED_BYTES, SEGMENT_BYTES = 4, 8, 256
"""Sizes in a record: of an id, of an id with its log-prob, and of a segment beside its ids."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One completion of a call."""

    asked: Asked
    choice: int
    start: int
    """Number of tokens before it."""
    partial: Generated | None = None
    acted: Acted | None = None
    turn: int | None = None
    """Its number among the accepted ones; None until then."""
    digest: bytes = b""
    reasoning: bytes = b""
    text: bytes = b""
    """Its message, if the call's text is kept."""

    @property
    def number(self) -> int:
        return self.asked.call + self.choice

    @property
    def end(self) -> int:
        """Number of tokens up to its end; those before it while it is open."""
        return self.start + (len(self.acted.token_ids) if self.acted else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A node that a request goes on from, and how many of the request's messages it holds."""

    node: Node
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A sequence: its nodes in order, and the place at which it left another."""

    nodes: tuple[Node, ...]
    segments: tuple[Segment, ...] = ()
    parent: int | None = None
    """Number of the path that it was forked from."""
    shared: int = 0
    """Number of tokens that both have."""

    @property
    def agent(self) -> str:
        return self.nodes[0].asked.agent

    @property
    def own(self) -> tuple[Segment, ...]:
        """The segments after the shared tokens."""
        return segments_after(self.segments, self.shared)


class Forest(msgspec.Struct, frozen=True, kw_only=True):
    """All model calls of an attempt."""

    begun: Begun
    nodes: tuple[Node | None, ...] = ()
    """By number; None for a dropped one."""
    accepted: tuple[int, ...] = ()
    """Numbers of the accepted nodes, by turn."""
    spent_s: float = 0.0
    """Seconds of the time limit that the events know of."""

    def asked(self, event: Asked) -> Forest:
        """Raises ValueError for a call that cannot follow."""
        if event.call != len(self.nodes) or event.n < 1:
            raise ValueError(f"call {event.call} after {len(self.nodes)} completions")
        if sum(count for _author, count in event.authors) != len(event.token_ids):
            raise ValueError(f"authors of call {event.call} do not add up to its ids")
        parent = None if event.parent is None else self.node(event.parent)
        if parent is not None and parent.turn is None:
            raise ValueError(f"call {event.call} goes on from an open completion")
        if not 0 <= event.shared <= (0 if parent is None else parent.end):
            raise ValueError(f"call {event.call} shares more ids than its parent has")
        start = event.shared + len(event.token_ids)
        new = (Node(asked=event, choice=choice, start=start) for choice in range(event.n))
        return replace(self._at(event.spent_s), nodes=(*self.nodes, *new))

    def streamed(self, event: Streamed) -> Forest:
        node = self._open(event.node)
        part = with_part(node.partial, event)
        return self._at(event.spent_s)._with(replace(node, partial=part))

    def acted(self, event: Acted) -> Forest:
        count = len(event.token_ids)
        if count != sum(run for _version, run in event.versions) or count != len(event.logprobs):
            raise ValueError(f"versions or log-probs of {count} tokens do not add up to them")
        return self._with(replace(self._open(event.node), partial=None, acted=event))

    def replied(self, event: Replied) -> Forest:
        nodes = self.call(event.call)
        if any(node.turn is not None or node.acted is None for node in nodes):
            raise ValueError(f"call {event.call} is not ready for a reply")
        texts = event.texts or (b"",) * len(nodes)
        forest = self._at(event.spent_s)
        given = zip(nodes, event.digests, event.reasoning, texts, strict=True)
        for turn, (node, digest, reasoning, text) in enumerate(given, len(self.accepted)):
            new = replace(node, turn=turn, digest=digest, reasoning=reasoning, text=text)
            forest = forest._with(new)
        return replace(forest, accepted=(*self.accepted, *(node.number for node in nodes)))

    def dropped(self, event: Dropped) -> Forest:
        nodes = self.call(event.call)
        if any(node.turn is not None for node in nodes):
            raise ValueError(f"call {event.call} is accepted and cannot be dropped")
        end = event.call + len(nodes)
        gone = (None,) * len(nodes)
        return replace(self, nodes=(*self.nodes[: event.call], *gone, *self.nodes[end:]))

    def node(self, number: int | None) -> Node:
        """Raises ValueError if no completion has that number."""
        node = None
        if number is not None and 0 <= number < len(self.nodes):
            node = self.nodes[number]
        if node is None:
            raise ValueError(f"no completion has the number {number}")
        return node

    def call(self, number: int) -> tuple[Node, ...]:
        """All completions of a call. Raises ValueError if no call has that number."""
        first = self.node(number)
        if first.choice:
            raise ValueError(f"completion {number} is not the first of its call")
        return tuple(self.node(one) for one in range(number, number + first.asked.n))

    @property
    def turns(self) -> Iterator[Node]:
        """Accepted completions, in order."""
        return map(self.node, self.accepted)

    @property
    def open_calls(self) -> list[int]:
        """Calls without a reply."""
        return [
            node.number for node in self.nodes if node and node.turn is None and node.choice == 0
        ]

    @property
    def written(self) -> int:
        """Number of tokens of all completions, those in progress included."""
        found = (node.acted or node.partial for node in self.nodes if node)
        return sum(len(one.token_ids) for one in found if one)

    @property
    def record_bytes(self) -> int:
        """Size that the sequences in a record do not exceed, in bytes. Each has a copy of what it
        shares. An open completion counts as a sequence with all tokens that it may get."""
        sizes: dict[int | None, int] = {None: 0}
        for node in filter(None, self.nodes):
            asked, acted = node.asked, node.acted
            count = len(acted.token_ids) if acted else asked.room
            segments = 1 + len(asked.authors) + (len(acted.versions) if acted else 1)
            own = ID_BYTES * len(asked.token_ids) + ACTED_BYTES * count + SEGMENT_BYTES * segments
            sizes[node.number] = sizes[asked.parent] + own
        ends = [path.nodes[-1].number for path in self._joined_nodes()]
        ends += [node.number for node in self.nodes if node and node.turn is None]
        return sum(sizes[number] for number in ends)

    def known(self, request: bytes) -> int | None:
        """The newest call with a request digest; None without one."""
        for node in reversed(self.nodes):
            if node is not None and node.asked.request == request:
                return node.asked.call
        return None

    def match(
        self, root: bytes, digests: Sequence[bytes], reasoning: Mapping[int, bytes]
    ) -> Match | None:
        """The accepted node that holds most of a request's messages; the latest of equal ones.

        reasoning: digest of an assistant message's reasoning, by the message's number from 0. A
        message that differs there from its completion does not match it.
        """
        held = {digest: number for number, digest in enumerate(digests, 1)}
        agrees = dict[int, bool]()
        best: Match | None = None
        for node in self.turns:
            asked, messages = node.asked, node.asked.messages + 1
            fits = asked.parent is None or agrees[asked.parent]
            # A parent whose end was cut off may have another message than the request.
            if found := asked.root == root and held.get(node.digest) == messages:
                fits &= reasoning.get(asked.messages, node.reasoning) == node.reasoning
            agrees[node.number] = fits
            if found and fits and (best is None or messages >= best.messages):
                best = Match(node=node, messages=messages)
        return best

    def longest_prefix(
        self, root: bytes, token_ids: Ids, *, whole: bool = False
    ) -> tuple[Node, int] | None:
        """The accepted node under `root` whose ids share most with `token_ids`, the latest of equal
        ones, and the number of shared ids; None if no id is shared. whole: only with a whole
        completion among the shared ids.
        """
        best: tuple[Node, int] | None = None
        alike = dict[int, int]()
        first_end = dict[int, int]()
        """End of the first whole completion in a node's ids."""
        for node in self.turns:
            asked, acted = node.asked, node.acted
            if asked.root != root or acted is None:
                continue
            shared = 0 if asked.parent is None else min(asked.shared, alike[asked.parent])
            for own, begin in ((asked.token_ids, asked.shared), (acted.token_ids, node.start)):
                if shared == begin:
                    shared += common_prefix(own, token_ids[begin : begin + len(own)])
            alike[node.number] = shared
            above = None if asked.parent is None else first_end[asked.parent]
            first_end[node.number] = (
                above if above is not None and above <= asked.shared else node.end
            )
            if whole and shared < first_end[node.number]:
                continue
            if shared > asked.shared and (best is None or shared >= best[1]):
                best = node, shared
        return best

    def above(self, number: int | None) -> Iterator[Node]:
        """The completion that a call goes on from, and those above it up to the root."""
        while number is not None:
            node = self.node(number)
            yield node
            number = node.asked.parent

    def prompt_ids(self, number: int) -> Ids:
        """[start] int32, the ids before a completion. Raises ValueError for an unknown number."""
        node = self.node(number)
        pieces, left = [node.asked.token_ids], node.asked.shared
        while left:
            node = self.node(node.asked.parent)
            if node.acted is not None and left > node.start:
                pieces.append(node.acted.token_ids[: left - node.start])
            shared = node.asked.shared
            pieces.append(node.asked.token_ids[: max(0, left - shared)])
            left = min(left, shared)
        found = ids()
        for piece in reversed(pieces):
            found.extend(piece)
        return found

    def ids(self, number: int) -> Ids:
        """[end] int32, the ids up to a completion's end."""
        node, prompt = self.node(number), self.prompt_ids(number)
        return prompt + node.acted.token_ids if node.acted is not None else prompt

    @property
    def text_bytes(self) -> int:
        """Size of all text that is kept."""
        found = (
            len(node.text) + (0 if node.choice else len(node.asked.text or b""))
            for node in self.nodes
            if node
        )
        return sum(found)

    def conversation(self, number: int) -> list[bytes] | None:
        """Texts of the calls that lead to an accepted completion, its own last; None if one of them
        is not kept. Raises ValueError for an unknown number."""
        pieces = list[bytes]()
        at: int | None = number
        while at is not None:
            node = self.node(at)
            if node.turn is None or node.asked.text is None:
                return None
            pieces += [node.text, node.asked.text]
            at = node.asked.text_after
        return pieces[::-1]

    def superseded(self) -> set[int]:
        """Accepted completions that another sample of the same request replaced. No call goes on
        from them: one goes on from the other sample, or the other sample is of a later call."""
        gone_on = {
            one.asked.parent
            for one in self.turns
            if one.asked.parent is not None and one.asked.shared > self.node(one.asked.parent).start
        }
        samples = defaultdict[tuple[int | None, bytes], list[Node]](list)
        for one in self.turns:
            samples[one.asked.parent, one.asked.digest].append(one)
        found = set[int]()
        for nodes in samples.values():
            taken = any(node.number in gone_on for node in nodes)
            last = nodes[-1].asked.call
            found |= {node.number for node in nodes if taken or node.asked.call != last}
        return found - gone_on

    def paths(self) -> list[Path]:
        """The sequences of all accepted completions, in the order of their first turns."""
        found = list[Path]()
        untrained = self._untrained()
        for path in self._joined_nodes():
            segments = list[Segment]()
            if path.parent is not None:
                segments += shared_segments(found[path.parent].segments, path.shared)
            for node in path.nodes:
                segments += self._segments(node, trainable=node.number not in untrained)
            found.append(replace_fields(path, segments=tuple(segments)))
        return found

    def fork_cause(self, node: Node) -> str:
        """Why an accepted completion opens a sequence; "" if it does not, or if it is the first.

        "choice": beside the first completion of its call. "root": it shares no ids. "prefix": it
        shares a part of its parent. "sample": another sample of a request. "branch": another
        request went on from its parent before.
        """
        asked = node.asked
        if node.choice:
            return "choice"
        if asked.parent is None or not asked.shared:
            return "root" if node.turn else ""
        if asked.shared < self.node(asked.parent).end:
            return "prefix"
        before = [
            one.asked.digest
            for one in self.turns
            if one.asked.parent == asked.parent
            and one.asked.shared == asked.shared
            and one.asked.call < asked.call
        ]
        return ("sample" if asked.digest in before else "branch") if before else ""

    def _joined_nodes(self) -> list[Path]:
        """The sequences without their tokens."""
        found = list[list[Node]]()
        forks = list[tuple[int | None, int]]()
        path_of = dict[int, int]()
        for node in self.turns:
            parent, shared = node.asked.parent, node.asked.shared
            if node.choice:  # the first one's prompt is theirs
                parent, shared = node.asked.call, node.start
            path = None if parent is None else path_of[parent]
            if path is not None and not node.choice and shared == found[path][-1].end:
                found[path].append(node)
            else:
                path = None if not shared else path
                forks.append((path, shared))
                found.append([node])
                path = len(found) - 1
            path_of[node.number] = path
        return [
            Path(nodes=tuple(nodes), parent=parent, shared=shared)
            for nodes, (parent, shared) in zip(found, forks, strict=True)
        ]

    def _untrained(self) -> set[int]:
        """Accepted completions that the learner does not train."""
        begun = self.begun
        found = {
            one.number
            for one in self.turns
            if one.asked.aside or (one.asked.grammar and not begun.train_constrained)
        }
        return found if begun.train_superseded else found | self.superseded()

    def _segments(self, node: Node, *, trainable: bool) -> tuple[Segment, ...]:
        """The segments of a completion and of its call's own ids."""
        asked, acted, turn = node.asked, node.acted, node.turn
        if acted is None or turn is None:
            raise ValueError(f"completion {node.number} is open")
        # Text before a completion belongs to the turn before it, as in our own loop.
        before = turn if asked.parent is None else self.node(asked.parent).turn or 0
        chain, begin = Chain(), 0
        for author, count in () if node.choice else asked.authors:
            piece = asked.token_ids[begin : begin + count]
            chain = chain.appended(piece, author, turn=before)
            begin += count
        return chain.acted(
            acted.token_ids,
            acted.logprobs,
            acted.versions,
            turn=turn,
            sampling=asked.sampling,
            finish=acted.finish,
            trainable=trainable,
        ).segments

    def _open(self, number: int | None) -> Node:
        node = self.node(number)
        if node.acted is not None:
            raise ValueError(f"completion {number} is complete")
        return node

    def _at(self, spent_s: float) -> Forest:
        return replace(self, spent_s=max(self.spent_s, spent_s))

    def _with(self, node: Node) -> Forest:
        number = node.number
        return replace(self, nodes=(*self.nodes[:number], node, *self.nodes[number + 1 :]))
