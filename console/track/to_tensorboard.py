"""RUN/tensorboard: event files, one folder a stream, by TensorBoard's own formats, without torch.

A step that comes again (a resumed run trained it once more) replaces its old values and takes what
came after it away, as TensorBoard has it: a session's START at a step purges what is there from
that step on. Evaluations are few, and are written anew whenever one of them comes again.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.text import metadata
from tensorboard.summary.writer.record_writer import RecordWriter

from console.track.points import Point, Stream
from console.track.tracker import Memory

FOLDER = "tensorboard"


class TensorBoard:
    """One life of the event files."""

    from_start: frozenset[Stream] = frozenset({"evaluations"})

    def __init__(self, run: Path, _memory: Memory) -> None:
        self._folder = run / FOLDER
        self._files: dict[str, _EventFile] = {}
        self._last: dict[Stream, int] = {}
        self._evaluated: dict[tuple[str, int], Point] = {}

    def write(self, points: Sequence[Point]) -> None:
        for point in points:
            if point.stream == "evaluations":
                self._evaluation(point)
            else:
                self._step(point)
        for file in self._files.values():
            file.flush()

    def describe(self, settings: Mapping[str, Any]) -> None:
        self._text("recipe", json.dumps(settings, indent=1))

    def finish(self, results: Mapping[str, Any], *, over: bool) -> None:
        if results:
            self._text("result", json.dumps(results, indent=1))
        for file in self._files.values():
            file.close()

    def _step(self, point: Point) -> None:
        file = self._file(point.stream)
        last = self._last.get(point.stream)
        if last is None or point.step <= last:
            file.restart(point.step)
        self._last[point.stream] = point.step
        file.scalars(point)

    def _evaluation(self, point: Point) -> None:
        file = self._file("evaluations")
        first, again = not self._evaluated, (point.part, point.step) in self._evaluated
        self._evaluated[point.part, point.step] = point
        if not (first or again):
            file.scalars(point)
            return
        file.restart(0)
        for known in sorted(self._evaluated.values(), key=lambda p: p.step):
            file.scalars(known)

    def _file(self, name: str) -> _EventFile:
        if name not in self._files:
            self._files[name] = _EventFile(self._folder / name)
        return self._files[name]

    def _text(self, tag: str, text: str) -> None:
        file = self._file("run")
        file.text(tag, "".join(f"    {line}\n" for line in text.splitlines()))
        file.flush()


class _EventFile:
    """A new file in `folder`; TensorBoard reads all of a folder, in the order of their names, and
    never goes back: a name's time is after those of the files before it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        before = (path.name.split(".")[3] for path in folder.glob("events.out.tfevents.*"))
        latest = max((int(word) for word in before if word.isdecimal()), default=0)
        now = max(int(time.time()), latest + 1)
        head = f"events.out.tfevents.{now:010d}.{socket.gethostname()}.{os.getpid()}"
        numbers = (f"{head}.{number}" for number in range(1000))
        self._path = next(folder / name for name in numbers if not (folder / name).exists())
        self._records = RecordWriter(self._path.open("xb"))
        self._event(Event(file_version="brain.Event:2"))

    def restart(self, step: int) -> None:
        """What stands in the folder from this step on counts no more."""
        self._event(Event(step=step, session_log=SessionLog(status=SessionLog.START)))

    def scalars(self, point: Point) -> None:
        values = [Summary.Value(tag=n, simple_value=v) for n, v in point.values.items()]
        self._event(Event(step=point.step, summary=Summary(value=values)))

    def text(self, tag: str, text: str) -> None:
        """Markdown, on TensorBoard's page of texts."""
        about = metadata.create_summary_metadata(tag, "")
        tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()])
        tensor.tensor_shape.dim.add(size=1)
        value = Summary.Value(tag=tag, metadata=about, tensor=tensor)
        self._event(Event(summary=Summary(value=[value])))

    def flush(self) -> None:
        self._records.flush()

    def close(self) -> None:
        self._records.close()

    def _event(self, event: Event) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())
