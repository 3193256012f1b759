"""`engine trace`: recorded trajectories as traces, in a file that Jaeger and Grafana open.

Only the journal's records are read, also while an engine serves the run; neither a collector nor
another package is needed. The file is renamed when it is complete: it is whole or missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from engine.core.trajectory.trace_spans import spans_of
from engine.errors import StartupError
from engine.offline.enums import TraceLayout
from engine.offline.inspect import jaeger
from engine.offline.inspect.state import unknown_trajectory
from engine.serving.journal.logs import LogState
from engine.serving.journal.reader import JournalReader, StoredRecord, reading
from toolwright.tracing import otlp
from toolwright.tracing.ids import trace_id
from toolwright.tracing.spans import Span


def write_traces(run_folder: Path, names: Sequence[str], output: Path, layout: TraceLayout) -> str:
    """Writes traces of the named trajectories, or of all with a record; returns a line for users.

    Raises StartupError for an unknown trajectory, and if there is no record at all.
    """
    with reading(run_folder) as reader:
        records = _named(reader, names) if names else _all(reader)
        traces = (_spans(reader.owner, record) for record in records)
        count = _write(output, traces, layout)
        if not count:
            raise StartupError(
                f"{run_folder} holds no trajectory: the journal deletes acknowledged ones; set "
                'engine.history = "all" to keep them'
            )
        line = f"{count} trace{'s' * (count > 1)} in {output}"
        if len(names) == 1:
            line += f"; its id is {trace_id(reader.owner, names[0])}"
        return line


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
                    f"{name} has no trace yet: wait until all trajectories of its group have ended"
                )
            raise unknown_trajectory(reader, name)
        found.append(record)
    return found


def _spans(run: str, record: StoredRecord) -> list[Span]:
    return spans_of(run, record.trajectory())


def _write(output: Path, traces: Iterable[list[Span]], layout: TraceLayout) -> int:
    """Writes the traces one by one and returns their number; without any, no file is made."""
    key = "data" if layout is TraceLayout.JAEGER else "resourceSpans"
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
        raise StartupError(
            f"{output} cannot be written ({error.strerror}): name another --output"
        ) from error
    finally:
        beside.unlink(missing_ok=True)
    return count


def _laid_out(spans: list[Span], layout: TraceLayout) -> object:
    """A Jaeger trace, or an OTLP resource with its spans."""
    if layout is TraceLayout.JAEGER:
        return jaeger.trace(spans)
    (resource,) = otlp.request(spans)["resourceSpans"]
    return resource
