"""Reads the calls of recordings, one trajectory at a time.

Recordings are run folders, trajectories files, and conversations as JSON lines. Schemas of tools
are in the event logs of a run (`engine.history = "all"` keeps them) and in rows of conversations.
The record of a trajectory has only the names of tools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from engine.core.trajectory.events import Answered, Forked, Opened
from engine.errors import StartupError
from engine.offline.analyze.rates import OWN_SHARES, call_rates, trajectory_rates
from engine.offline.analyze.tally import ToolTally
from engine.offline.conversations.lines import conversations
from engine.offline.conversations.types import RecordedConversation
from engine.serving.evaluation.rates import Sums, shares_of
from engine.serving.journal.logs import LogState
from engine.serving.journal.reader import JournalReader, reading
from engine.serving.journal.schema import FILE_NAME
from engine.types import ToolSpec, tools_of
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.trajectory_files import (
    SUFFIX,
    UNFINISHED,
    UnreadableTrajectories,
    read_trajectories,
)
from toolwright.types import Trajectory

_EXPORTS = (".openai.jsonl", ".hermes.jsonl", ".jsonl")
"""Suffixes of files in a folder of shards; layouts that always have tools come first."""


def add_recording(source: Path, tally: ToolTally) -> list[str]:
    """Adds a recording to the tally; returns sentences on what it lacks.

    Raises StartupError for anything but an intact recording, with file and line if it has lines.
    """
    if source.is_dir():
        return _folder(source, tally)
    if not source.exists():
        raise StartupError(
            f"no file {source}: name a run's folder, a trajectories file or conversations as .jsonl"
        )
    if source.suffix in (".jsonl", ".json"):
        return _conversations([source], tally)
    return _trajectories(source, tally)


def _folder(folder: Path, tally: ToolTally) -> list[str]:
    """A run, or shards of `engine sample`; one kind of file is enough, as all hold the same."""
    if (folder / FILE_NAME).exists():
        return _run(folder, tally)
    names = sorted(file.name for file in folder.iterdir())
    for suffix in _EXPORTS:
        if files := [folder / name for name in names if name.endswith(suffix)]:
            notes = _conversations(files, tally)
            notes.append(
                f"{folder}: only files that end in {suffix} were read; a trajectory that could not "
                "be exported in this layout is not counted"
            )
            if any(name.endswith(UNFINISHED) for name in names):
                notes.append(f"{folder} is still written to: unfinished files are left out")
            return notes
    if any(name.endswith((SUFFIX, UNFINISHED)) for name in names):
        return _trajectories(folder, tally)
    return _run(folder, tally)


def _run(folder: Path, tally: ToolTally) -> list[str]:
    notes = []
    groups = unreadable = 0
    with reading(folder) as reader:
        for records in reader.groups():
            groups += 1
            shared = _Shared()
            for one in records:
                trajectory = one.trajectory()
                tools = _tools(reader, one.attempt) if trajectory.calls else {}
                unreadable += tools is None
                _add(trajectory, shared, tally, tools or {})
        made = reader.counts().last_sequence
        flying = len(reader.attempts(LogState.OPEN))
    if groups < made:
        notes.append(
            f"{folder} holds {groups} of the {made} groups of the run: the others went to the "
            'learner; engine.history = "all" keeps them'
        )
    if unreadable:
        notes.append(
            f"{folder}: {unreadable} logs of attempts cannot be read: their tools have names only"
        )
    if flying:
        notes.append(f"{folder}: {flying} attempts without a complete group are left out")
    return notes


def _tools(reader: JournalReader, attempt: str) -> Mapping[str, ToolSpec] | None:
    """Tools of an attempt's sessions by name; empty without a log, None for an unreadable one."""
    try:
        events = reader.log(attempt)
    except ValueError:
        return None
    found: dict[str, ToolSpec] = {}
    for event in events:
        added: Iterable[ToolSpec] = ()
        if isinstance(event, Opened | Forked):
            added = tools_of(event.sessions)
        elif isinstance(event, Answered):
            added = event.new_tools
        for tool in added:
            found.setdefault(tool.name, tool)
    return found


def _trajectories(source: Path, tally: ToolTally) -> list[str]:
    """A file, or a folder of them."""
    shared, before = _Shared(), tally.invocations
    try:
        for trajectory in read_trajectories(source):
            if trajectory.group_id != shared.group:
                shared = _Shared(trajectory.group_id)
            _add(trajectory, shared, tally, {})
    except UnreadableTrajectories as error:
        raise StartupError(str(error)) from error
    if tally.invocations == before:
        return []
    return [
        f"{source}: trajectories record only the names of tools; exports of `engine sample` and "
        'runs with engine.history = "all" also record descriptions and schemas'
    ]


class _Shared:
    """Calls of one group so far: branches of a trajectory share the calls before the fork. Its
    trajectories are not independent, so they are one cluster of the rates."""

    def __init__(self, group: str = "") -> None:
        self.group = group
        self.calls: set[str] = set()
        self.rates: Sums = {}


def _add(
    trajectory: Trajectory, shared: _Shared, tally: ToolTally, tools: Mapping[str, ToolSpec]
) -> None:
    tally.trajectories += 1
    own = []
    for call in trajectory.calls:
        if call.call_id and call.call_id in shared.calls:
            continue
        shared.calls.add(call.call_id)
        own.append(call)
    tally.rates.add(
        trajectory_rates(trajectory, own),
        shared.rates,
        shares=(*OWN_SHARES, *shares_of(trajectory.events)),
    )
    _count(Counter(call.tool for call in own), tools, tally)


def _conversations(files: Sequence[Path], tally: ToolTally) -> list[str]:
    unmatched = 0
    for file in files:
        for number, found in conversations(file):
            if isinstance(found, RowRefused):
                raise StartupError(
                    f"{file}:{number}: {found}; fix the line or remove it: every line is counted"
                ) from found
            tally.trajectories += 1
            unmatched += _unmatched(found)
            tools = {tool.name: tool for tool in found.tools or ()}
            called = Counter(_called(found))
            tally.rates.add(call_rates(called.total()), shares=OWN_SHARES)
            _count(called, tools, tally)
    if not unmatched:
        return []
    return [
        f"{unmatched:,} messages of role tool belong to no structured call: calls that are written "
        "in content are not counted"
    ]


def _unmatched(conversation: RecordedConversation) -> int:
    """Tool messages beyond the number of structured calls."""
    answers = sum(1 for message in conversation.messages if message.get("role") == "tool")
    return max(0, answers - sum(1 for _ in _called(conversation)))


def _called(conversation: RecordedConversation) -> Iterator[str]:
    for message in conversation.messages:
        for call in message.get("tool_calls") or ():
            yield call["function"]["name"]


def _count(called: Mapping[str, int], tools: Mapping[str, ToolSpec], tally: ToolTally) -> None:
    """Adds each tool once with its number of calls, because a schema may be long."""
    for name, times in called.items():
        tool = tools.get(name)
        if tool is None:
            tally.add(name, "", None, times)
        else:
            # A tool without a schema may still have parameters: they are unknown.
            described = tool.description or tool.usage
            tally.add(name, described, tool.arguments_schema or None, times)
