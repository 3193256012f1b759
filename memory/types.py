"""The vocabulary of the memory: a tool and its node, a group's work, and the change that it
makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from memory.graph.merging import Mode

Scoring = Literal["hybrid", "graphrag"]
"""How a score is made: words and embeddings with a walk along the graph (SEARL, equation 9), or
its released GraphRAG variant."""
TextOf = Literal["description", "name and description"]
"""Words of a tool that are embedded, searched and compared (SEARL, appendix E.1; section 3.3)."""
Prefer = Literal["first", "higher_support", "higher_success"]
"""Which tool's code a class keeps: the earliest tool's, the one with higher support, or the one
with the higher success rate. Between equals the earlier tool's code stays."""


def lineage_of(group: str) -> str:
    """Lineage of the training that a group belongs to: groups are named LINEAGE/..."""
    return group.partition("/")[0]


DELTA = 0.88
"""Least cosine of two tools that are one: the released code's; the paper gives no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as an agent made it. arguments: in words; schema: as JSON schema, where known.

    inputs: JSON objects, the arguments of calls that worked; the first is that of its first call.
    """

    name: str
    description: str
    code: str
    arguments: str = ""
    returns: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Outcomes of a tool's calls. last_used: training step, -1 before the first call; seconds: of
    all calls together."""

    calls: int = 0
    successes: int = 0
    last_used: int = -1
    seconds: float = 0.0

    def __add__(self, other: Stats) -> Stats:
        return Stats(
            calls=self.calls + other.calls,
            successes=self.successes + other.successes,
            last_used=max(self.last_used, other.last_used),
            seconds=self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A class of tools that are one. aliases: the other names that it goes by; support: tools
    merged into it, itself included; created_step: training step; source: who made it."""

    id: int
    tool: Tool
    aliases: tuple[str, ...] = ()
    support: int = 1
    created_step: int = 0
    source: str = ""
    stats: Stats = field(default_factory=Stats)

    @property
    def name(self) -> str:
        return self.tool.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A tool for a question, and its score in [0, 1]."""

    node: Node
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutWork:
    """What one rollout made and called.

    candidates: in the order in which they were made. used: by the name that the rollout called a
    candidate or a node by. edges: (from, to, count) by such names.
    """

    trajectory: str
    candidates: tuple[Tool, ...] = ()
    used: Mapping[str, Stats] = field(default_factory=dict)
    edges: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One iteration of a training run. step: training step of the weights that roll it out."""

    run: str
    step: int

    def __str__(self) -> str:
        return f"{self.run}.{self.step}"

    @property
    def group(self) -> str:
        """Name of the change that begins the iteration."""
        return f"{self.run}/iteration {self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWork:
    """What the rollouts of a group did to the memory.

    group: unlike any other's. step: training step. registers: the trajectory whose candidates
    become nodes, "" = none. prefer: whose code a node keeps. check: tools are merged only where
    both give the same on each other's inputs. reserved: names that no node may have. counts: what
    a report shall count beside the graph. iteration: the one that the group began in; its tools
    wait for a later iteration. None: they are merged at once.
    """

    group: str
    step: int
    rollouts: tuple[RolloutWork, ...] = ()
    registers: str = ""
    delta: float = DELTA
    mode: Mode = "greedy"
    prefer: Prefer = "first"
    check: bool = False
    reserved: frozenset[str] = frozenset()
    counts: Mapping[str, int] = field(default_factory=dict)
    iteration: Iteration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What is left to merge of a group that waits for a later iteration.

    work: the registering rollout with the candidates that may become nodes; of other rollouts only
    what they called. vectors: of those candidates, in their order; float32 [d], of length 1 or 0,
    as bytes.
    """

    work: GroupWork
    vectors: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A candidate that cannot be registered. reason: a sentence."""

    trajectory: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMerged:
    """Answer to a group's work.

    version: of the memory after it. canonical: for each rollout in order, name of a tool that it
    made or called -> canonical name. Tools that are one have one canonical name, over the earlier
    memory and all candidates of the group. registered: name of a registered tool -> the name of
    its node; empty for a group that waits.
    """

    version: int
    canonical: tuple[Mapping[str, str], ...] = ()
    refused: tuple[Refused, ...] = ()
    registered: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode:
    """A tool that became a node, under the name that it has there. vector: float32 [d], of length
    1 or 0, as bytes. Its id is the graph's next one."""

    tool: Tool
    vector: bytes
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A tool that was merged into the node `into`: the node gets its name, and its inputs if both
    tools gave the same results on them."""

    name: str
    into: int
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a group made of the memory, decided against the version before it.

    Everything in it is decided: a fold compares nothing, embeds nothing and runs nothing, so every
    process and every machine gets the same graph.

    asked: SHA-256 of what the group did, in hex. unions: (gone, into) ids of nodes that became one.
    made: new nodes in the order of their ids. joined: into any node, new ones included. replaced:
    id -> the tool whose code the node has from now on. edges: (from, to, count) by ids. used: by
    id. canonical, refused, registered: the answer to the group. waits: the part that is merged
    later; such a change leaves nodes and edges as they are. begins: an iteration, for which the
    groups in `parts` are merged in this order; they waited under these names.
    """

    group: str
    step: int
    asked: str = ""
    delta: float = DELTA
    unions: tuple[tuple[int, int], ...] = ()
    made: tuple[NewNode, ...] = ()
    joined: tuple[Joined, ...] = ()
    replaced: Mapping[int, Tool] = field(default_factory=dict)
    edges: tuple[tuple[int, int, int], ...] = ()
    used: Mapping[int, Stats] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    canonical: tuple[Mapping[str, str], ...] = ()
    refused: tuple[Refused, ...] = ()
    registered: Mapping[str, str] = field(default_factory=dict)
    waits: Waiting | None = None
    begins: Iteration | None = None
    parts: tuple[Change, ...] = ()

    @property
    def merged(self) -> tuple[Change, ...]:
        """The changes of nodes and edges in it: its parts, or itself."""
        return self.parts if self.begins is not None else (self,)
