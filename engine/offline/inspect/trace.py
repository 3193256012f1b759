"""`engine trace`: recorded trajectories as traces, in a file that Jaeger and Grafana open.

Made of the journal's records alone, also while an engine serves the run: no collector, no package.
The file is written beside and then renamed: it is whole or not there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

from engine.core.trajectory.trace_spans import spans_of
from engine.errors import StartupError
from engine.offline.inspect import jaeger
from engine.offline.inspect.command import unknown_trajectory
from engine.serving.journal.logs import LogState
from engine.serving.journal.reader import JournalReader, StoredRecord, reading
from toolwright.tracing import otlp
from toolwright.tracing.ids import trace_id
from toolwright.tracing.spans import Span


class Layout(StrEnum):
    """Of the file."""

    JAEGER = "jaeger"
    """{"data": [...]}, which Jaeger's page uploads."""
    OTLP = "otlp"
    """{"resourceSpans": [...]}, for everything that reads OpenTelemetry's JSON."""


def write_traces(run_folder: Path, names: Sequence[str], output: Path, layout: Layout) -> str:
    """The traces of the named trajectories, or of all whose records are held, into `output`.
    Returns what to tell. StartupError for an unknown trajectory, and where none is held."""
    with reading(run_folder) as reader:
        records = _named(reader, names) if names else _all(reader)
        traces = (_spans(reader.owner, record) for record in records)
        count = _write(output, traces, layout)
        if not count:
            raise StartupError(
                f"{run_folder} holds no trajectory: the journal forgets what was acknowledged, "
                'engine.history = "all" keeps everything'
            )
        told = f"{count} trace{'s' * (count > 1)} in {output}"
        if len(names) == 1:
            told += f"; its id is {trace_id(reader.owner, names[0])}"
        return told


def _all(reader: JournalReader) -> Iterator[StoredRecord]:
    for group in reader.groups():
        yield from group


def _named(reader: JournalReader, names: Sequence[str]) -> list[StoredRecord]:
    found = []
    for name in dict.fromkeys(names):
        record = reader.record(name)
        if record is None:
            if reader.attempts(*LogState, trajectory=name):
                raise StartupError(
                    f"{name} is in flight, or its group is: it has a trace when the group is whole"
                )
            raise unknown_trajectory(reader, name)
        found.append(record)
    return found


def _spans(run: str, record: StoredRecord) -> list[Span]:
    return spans_of(run, record.trajectory())


def _write(output: Path, traces: Iterable[list[Span]], layout: Layout) -> int:
    """How many there were; without any there is no file. One at a time is in memory."""
    key = "data" if layout is Layout.JAEGER else "resourceSpans"
    beside = output.with_name(f".{output.name}.unfinished")
    count = 0
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(f'{{"{key}": [')
            for count, spans in enumerate(traces, 1):
                file.write(",\n" if count > 1 else "\n")
                file.write(json.dumps(_laid_out(spans, layout)))
            file.write("\n]}\n")
        if count:
            os.replace(beside, output)
    except OSError as error:
        raise StartupError(f"{output} cannot be written ({error.strerror})") from error
    finally:
        beside.unlink(missing_ok=True)
    return count


def _laid_out(spans: list[Span], layout: Layout) -> object:
    """A trace of Jaeger's, or the one resource that the engine's spans have."""
    if layout is Layout.JAEGER:
        return jaeger.trace(spans)
    (resource,) = otlp.request(spans)["resourceSpans"]
    return resource
