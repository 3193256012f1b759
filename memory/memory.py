"""A tool memory: it merges the work of groups and answers questions.

Invariants
- The graph of version n is the fold of the first n changes, in this process and in any other one.
- A change is decided against the version that it follows, and is durable before it is visible. A
  group that comes again changes nothing and gets its first answer.
- An iteration always sees one version: the one that its first question made or got.
- A question may name a version; by default it gets the newest version known to this process.
- No tool runs here.

Thread-safe. Merges wait for each other. Questions to the newest version never wait. Questions to an
older version may wait for a merge, because its graph is folded again. Another process's changes are
noticed at the next merge or `refresh`, within LOOK_S by `newest`, and when a question names a
version that is not known yet.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from memory.admission import admitted, check_work
from memory.checks.runner import Runner
from memory.checks.verdicts import Verdicts
from memory.errors import BadWork, GroupReused, NoChecks, Unusable
from memory.graph.changes import asked, from_bytes, to_bytes
from memory.graph.decide import Alike, decide
from memory.graph.graph import ToolGraph
from memory.graph.iterations import begun, due, waiting
from memory.history import History
from memory.search import ranking, traversal
from memory.search.embedding import Embedder
from memory.search.retrieval import Version
from memory.search.text import Texts
from memory.store import Log, pages
from memory.types import (
    Change,
    Found,
    GroupMerged,
    GroupWork,
    Iteration,
    NewNode,
    Scoring,
    Tool,
    lineage_of,
)

KEPT = 8
"""Versions that stay in memory; others are folded again on demand."""
MOST_SUBTASKS = 64
LOOK_S = 1.0
"""Shortest time between two looks for another process's merges, in seconds."""


class Memory:
    """One memory, over a log that others may share."""

    def __init__(
        self,
        log: Log,
        embed: Embedder,
        *,
        text_of: Callable[[Tool], str] | None = None,
        runner: Runner | None = None,
    ) -> None:
        """text_of: words of a tool that are searched and compared; its description by default (see
        `search.described`). runner: runs a new tool's first
        inputs again, and what `check` asks for. Raises Unusable."""
        self._log = log
        self._embed = embed
        self._text_of = text_of or (lambda tool: tool.description)
        self._runner = runner
        self._lock = threading.RLock()
        self._history = History(log)
        graph = self._history.newest
        # A node that was merged away before the snapshot has no text here any more.
        self._unread = frozenset(graph.gone.tolist())
        nodes = (graph.by_id.get(place) for place in range(graph.next_id))
        self._texts = Texts("" if node is None else self._text_of(node.tool) for node in nodes)
        self._newest = Version(graph, self._texts)
        self._ready: OrderedDict[int, Version] = OrderedDict()
        self._shelf = threading.Lock()
        self._looked = 0.0
        self._looking = threading.Lock()
        self._steps: list[tuple[str, int]] = []
        """(lineage, training step) of each change, as far as it has been needed."""
        self.refresh()

    @property
    def graph(self) -> ToolGraph:
        """The newest version that is known here."""
        return self._newest.graph

    @property
    def checks(self) -> bool:
        """Whether a sandbox is configured."""
        return self._runner is not None

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """[n, d], each row on its own, so that it does not depend on the others."""
        rows = [self._embed([text])[0] for text in texts]
        return np.stack(rows) if rows else np.zeros((0, 0), np.float32)

    def refresh(self) -> int:
        """Folds the changes appended since; returns the newest version. Raises Unusable."""
        with self._lock:
            self._looked = time.monotonic()
            if self._history.refresh(self._read):
                self._show()
            return self._newest.graph.version

    def newest(self) -> int:
        """The newest version; looks into the log from time to time, and never during a merge.
        Raises Unusable."""
        if time.monotonic() - self._looked > LOOK_S and self._lock.acquire(blocking=False):
            try:
                self.refresh()
            finally:
                self._lock.release()
        return self._newest.graph.version

    def before(self, lineage: str, step: int) -> int:
        """The version before the first group of that lineage whose training step is `step` or a
        later one; the newest if there is no such group. Changes from elsewhere, a copy for example,
        count from the beginning. Raises Unusable."""
        newest = self.newest()
        if (seen := self.graph.begun.get(lineage, {}).get(step)) is not None:
            return seen
        with self._looking:
            for data in pages(self._log, len(self._steps), newest - len(self._steps)):
                change = from_bytes(data)
                # An iteration begins with what groups of earlier steps did.
                own = "" if change.begins is not None else lineage_of(change.group)
                self._steps.append((own, change.step))
        known = enumerate(islice(self._steps, newest))
        return next((at for at, (own, one) in known if own == lineage and one >= step), newest)

    def begin(self, iteration: Iteration) -> tuple[int, int]:
        """(the version that an iteration sees, number of tools that this call registered). The
        first question of an iteration merges the groups that wait for it; afterwards its version
        stays the same, in every process. Raises NoChecks, ChecksDown or Unusable."""
        if (seen := self.graph.seen_by(iteration)) is not None:
            return seen, 0
        self.refresh()
        alike = None
        if any(one.work.check for one in due(self.graph, iteration)):
            alike = self._verdicts()
            begun(self.graph, iteration, alike)  # runs tools while others merge
        with self._lock:
            while True:
                self.refresh()
                graph = self.graph
                if (seen := graph.seen_by(iteration)) is not None:
                    return seen, 0
                change = begun(graph, iteration, alike)
                data = to_bytes(change)
                stood = self._log.append(change.group, data, graph.version)
                if stood != (graph.version + 1, data):
                    continue  # another process was there first; the next look shows what it did
                self._history.follow(change, data, self._read)
                self._show()
                self._keep(self._newest)
                return self.graph.version, sum(len(part.registered) for part in change.parts)

    def merge_group(self, work: GroupWork) -> GroupMerged:
        """Registers one rollout's candidates and returns the canonical names of all; the same work
        again gets the same answer. With an iteration, the names are decided against the version
        that the iteration sees, and the candidates wait. Raises BadWork, NoChecks, ChecksDown,
        GroupReused or Unusable."""
        check_work(work)
        if (stood := self._log.find(work.group)) is not None:
            return self._answered(work, *stood)
        alike = self._verdicts() if work.check else None
        candidates, refused = admitted(work, self._vectors, self._runner)
        if work.iteration is not None:
            seen = self.at(self.begin(work.iteration)[0])
            told = decide(work, seen, candidates, refused, alike)
            change = Change(
                group=work.group,
                step=work.step,
                counts=work.counts,
                canonical=told.canonical,
                refused=told.refused,
                waits=waiting(work, candidates),
            )
            with self._lock:
                return self._merged(work, lambda _graph: change)
        if alike is not None:  # runs tools while others merge; its verdicts are kept
            decide(work, self.graph, candidates, refused, alike)
        with self._lock:
            return self._merged(work, lambda graph: decide(work, graph, candidates, refused, alike))

    def at(self, version: int | None = None) -> ToolGraph:
        """The graph of a version. Raises NoVersion or Unusable."""
        return self._version(version).graph

    def changes(self, after: int = 0, most: int | None = None) -> Iterator[Change]:
        """The changes after a version, in order. Raises Unusable."""
        return map(from_bytes, pages(self._log, after, most))

    def retrieve(
        self,
        subtasks: Sequence[str],
        *,
        per_subtask: int = traversal.PER_SUBTASK,
        in_all: int = traversal.IN_ALL,
        alpha: float = ranking.ALPHA,
        version: int | None = None,
        scoring: Scoring = "hybrid",
        step: int | None = None,
    ) -> list[Found]:
        """The tools for a plan, the best first. version: None = the newest known to this process.
        step: training step of the question, for graphrag; None = that of the newest call. Raises
        BadWork, NoVersion or Unusable."""
        if len(subtasks) > MOST_SUBTASKS:
            raise BadWork(f"{len(subtasks)} subtasks are asked for, at most {MOST_SUBTASKS} are")
        ready = self._version(version)
        if not ready.graph.by_id or not subtasks:
            return []
        return ready.find(
            subtasks,
            self._fitting(self.embed(subtasks), ready.graph),
            per_subtask=per_subtask,
            in_all=in_all,
            alpha=alpha,
            scoring=scoring,
            step=step,
        )

    def _verdicts(self) -> Alike:
        if self._runner is None:
            raise NoChecks(
                "the merge needs a check that tools behave alike, and no service runs them: give "
                "`memory serve` the address of a tool service as [memory] checks"
            )
        return Verdicts(self._runner).alike

    def _merged(self, work: GroupWork, decided: Callable[[ToolGraph], Change]) -> GroupMerged:
        """Decides and appends; repeats both if another process appended first. Each repeat means
        that another change went in, so the log always grows."""
        digest = asked(work)
        while True:
            self.refresh()
            change = replace(decided(self._newest.graph), asked=digest)
            data = to_bytes(change)
            after = self._newest.graph.version
            stood = self._log.append(work.group, data, after)
            if stood is None:
                continue
            version, stands = stood
            if version == after + 1 and stands == data:
                self._history.follow(change, data, self._read)
                self._show()
            return self._answered(work, version, stands)

    def _answered(self, work: GroupWork, version: int, data: bytes) -> GroupMerged:
        change = from_bytes(data)
        if change.asked != asked(work):
            raise GroupReused(
                f"group {work.group} came before as version {version} with another content: give a "
                "group that is rolled out again a name of its own"
            )
        if version > self._newest.graph.version:
            self.refresh()
        return GroupMerged(
            version=version,
            canonical=change.canonical,
            refused=change.refused,
            registered=change.registered,
        )

    def _vectors(self, tools: Sequence[Tool]) -> npt.NDArray[np.float32]:
        return self._fitting(self.embed([self._text_of(tool) for tool in tools]), self.graph)

    def _fitting(self, rows: npt.NDArray[np.float32], graph: ToolGraph) -> npt.NDArray[np.float32]:
        width = graph.vectors.shape[1]
        if graph.next_id and len(rows) and rows.shape[1] != width:
            raise Unusable(
                f"the memory has embeddings of {width} numbers and the embedder gives "
                f"{rows.shape[1]}: use the embedder that the memory was begun with"
            )
        return rows

    def _read(self, made: NewNode) -> None:
        self._texts.add(self._text_of(made.tool))

    def _show(self) -> None:
        """Publishes the newest version to questions."""
        graph = self._history.newest
        if graph.content == self._newest.graph.content:
            self._newest = self._newest.again(graph)
            return
        self._newest = Version(graph, self._texts)
        self._keep(self._newest)

    def _version(self, version: int | None) -> Version:
        newest = self._newest
        if version is None or version == newest.graph.version:
            return newest
        if (ready := self._kept(version)) is not None:
            return ready
        with self._lock:
            if version > newest.graph.version:
                self.refresh()
            if (ready := self._kept(version)) is None:
                graph = self._history.at(version)
                ready = Version(graph, self._texts_of(graph))
            self._keep(ready)
            return ready

    def _kept(self, version: int) -> Version | None:
        with self._shelf:
            if (ready := self._ready.get(version)) is not None:
                self._ready.move_to_end(version)
            return ready

    def _keep(self, ready: Version) -> None:
        with self._shelf:
            self._ready[ready.graph.version] = ready
            self._ready.move_to_end(ready.graph.version)
            while len(self._ready) > KEPT:
                self._ready.popitem(last=False)

    def _texts_of(self, graph: ToolGraph) -> Texts:
        """Texts of all versions, unless this one has a node that was merged before the texts were
        read."""
        if self._unread.isdisjoint(graph.by_id):
            return self._texts
        nodes = (graph.by_id.get(place) for place in range(graph.next_id))
        return Texts("" if node is None else self._text_of(node.tool) for node in nodes)
