"""An outside agent's calls, as the engine logs them: a small model of conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import count

from engine.core.trajectory.events import (
    Acted,
    AnyEvent,
    Asked,
    Begun,
    Dropped,
    Replied,
    Streamed,
    decode,
    encode,
)
from engine.core.trajectory.forest import Forest
from engine.core.trajectory.partials import with_part
from engine.core.trajectory.state import EMPTY, State, apply, fold
from toolwright.ingress.limits import DIGEST_BYTES
from toolwright.types import (
    Author,
    FinishKind,
    FinishReason,
    Ids,
    SamplingParams,
    WeightVersion,
    floats,
    ids,
)

ROOT = b"r" * DIGEST_BYTES
V0 = WeightVersion(lineage="a", step=0)
SAMPLING = SamplingParams(temperature=1.0)
STOP = FinishReason(kind=FinishKind.STOP)


def digests_of(messages: Sequence[str], root: bytes = ROOT) -> list[bytes]:
    """D(1), D(2), ... of a conversation."""
    found, last = [], root
    for message in messages:
        last = blake2b(last + message.encode(), digest_size=DIGEST_BYTES).digest()
        found.append(last)
    return found


@dataclass(kw_only=True)
class OutsideAgent:
    """Writes the events of calls. A message is a text, its ids are new ones.

    `sent` has the prompt of each completion as the sampler read it, `written` its own ids.
    """

    begun: Begun = field(default_factory=lambda: Begun(sampling=SAMPLING))
    events: list[AnyEvent] = field(default_factory=list)
    sent: dict[int, Ids] = field(default_factory=dict)
    written: dict[int, Ids] = field(default_factory=dict)
    state: State = EMPTY
    version: WeightVersion = V0
    """Version of the next tokens."""

    def __post_init__(self) -> None:
        self._fresh_ids = count(1)
        self.add(self.begun)

    @property
    def forest(self) -> Forest:
        assert self.state.forest is not None
        return self.state.forest

    def add(self, event: AnyEvent) -> None:
        self.state = apply(self.state, event)
        self.events.append(event)

    def new_ids(self, size: int) -> Ids:
        return ids(next(self._fresh_ids) for _ in range(size))

    def ask(
        self,
        messages: Sequence[str],
        *,
        root: bytes = ROOT,
        n: int = 1,
        parent: int | None = None,
        cut: int | None = None,
        tail: int = 2,
        aside: bool = False,
        agent: str = "",
    ) -> int:
        """Asks with the tail after `parent` (default: the match), or after its first `cut` tokens.
        Returns the call."""
        digests = digests_of(messages, root)
        match = self.forest.match(root, digests, {})
        if parent is None and match is not None:
            parent = match.node.number
        number = len(self.forest.nodes)
        shared = 0 if parent is None else self.forest.node(parent).end
        if cut is not None:
            shared = min(cut, shared)
        self.add(
            Asked(
                call=number,
                root=root,
                digest=digests[-1],
                messages=len(messages),
                request=digests[-1],
                token_ids=self.new_ids(tail),
                authors=((Author.TEMPLATE, 1), (Author.PROMPT, tail - 1)),
                room=100,
                sampling=SAMPLING,
                parent=parent,
                shared=shared,
                n=n,
                agent=agent,
                aside=aside,
            )
        )
        for choice in range(number, number + n):
            self.sent[choice] = self.forest.prompt_ids(choice)
        return number

    def stream(self, number: int, size: int = 1) -> None:
        token_ids = self.new_ids(size)
        self.add(
            Streamed(
                node=number,
                token_ids=token_ids,
                logprobs=floats([-1.0] * size),
                versions=((self.version, size),),
            )
        )

    def publish(self) -> None:
        """New weights: completions in progress go on with them."""
        self.version = replace(self.version, step=self.version.step + 1)

    def die(self, lost: int) -> None:
        """The engine is killed and goes on from its journal, without the last `lost` events. It
        loses no reply and nothing before one, because a client gets its reply from the disk."""
        kept = max(
            number
            for number, event in enumerate(self.events, 1)
            if isinstance(event, Begun | Replied)
        )
        self.events = decode(encode(self.events[: max(kept, len(self.events) - lost)]))
        self.state = fold(self.events)
        for known in (self.sent, self.written):
            for number in [one for one in known if one >= len(self.forest.nodes)]:
                del known[number]

    def act(self, number: int, size: int = 2) -> None:
        """Ends a completion that begins with what was streamed."""
        rest = Streamed(
            node=number,
            token_ids=self.new_ids(size),
            logprobs=floats([-1.0] * size),
            versions=((self.version, size),),
        )
        whole = with_part(self.forest.node(number).partial, rest)
        token_ids = whole.token_ids
        self.written[number] = token_ids
        self.add(
            Acted(
                node=number,
                token_ids=token_ids,
                logprobs=floats([-1.0] * len(token_ids)),
                versions=whole.versions,
                finish=STOP,
                text=f"a{number}",
            )
        )

    def reply(self, call: int, messages: Sequence[str]) -> list[list[str]]:
        """Accepts a call. Returns the conversation with each completion."""
        histories = [[*messages, f"a{node.number}"] for node in self.forest.call(call)]
        digests = tuple(digests_of(one)[-1] for one in histories)
        self.add(Replied(call=call, digests=digests, reasoning=(b"",) * len(histories)))
        return histories

    def drop(self, call: int) -> None:
        self.add(Dropped(call=call))

    def talk(self, messages: Sequence[str], **fields: int) -> list[str]:
        """One call from its request to its reply: the conversation with it."""
        call = self.ask(messages, **fields)  # type: ignore[arg-type]
        self.act(call)
        return self.reply(call, messages)[0]
