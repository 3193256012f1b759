"""What the course says of itself: to the screen, and to RUN/console/course.jsonl.

A disk that takes no more lines ends no run, which goes on by itself once there is room: it is said
once, and what comes meanwhile is not noted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from console.machine.processes import Running
from console.record.course import CourseLog, ProcessRecord
from console.watch.screen import Screen


class Notes:
    """Notes of one start."""

    def __init__(self, log: CourseLog, screen: Screen) -> None:
        self._log = log
        self._screen = screen
        self._what: dict[str, tuple[str, str]] = {}
        self._died: set[str] = set()
        self._full = False

    def stage(self, name: str, text: str) -> None:
        """The next stage begins."""
        self._screen.stage(text)
        self._note(lambda: self._log.stage(name, text))

    def say(self, text: str) -> None:
        """A line that stays. A terminal that is gone takes none."""
        with suppress(OSError):
            self._screen.say(text)

    def about(self, name: str, what: str, address: str = "") -> None:
        """What a process that is about to start is for."""
        self._what[name] = what, address

    def process(self, running: Running) -> None:
        """A process was started, started again, or has ended."""
        command = running.command
        what, address = self._what.get(command.name, ("", ""))
        record = ProcessRecord(
            name=command.name,
            what=what,
            command=command.shown,
            state="started" if running.alive else "ended",
            pid=running.pid,
            created=running.created,
            address=address,
            log=str(running.log),
            status=running.status,
        )
        self._note(lambda: self._log.process(record))
        if running.alive and command.name in self._died:
            self._died.discard(command.name)
            self.say(
                f"{command.name} had ended and was started again ({running.log}); if it ends "
                "again within the hour, the run ends"
            )
        elif not running.alive and running.answered and not running.stopping:
            self._died.add(command.name)

    def found(self, name: str, what: str, address: str) -> None:
        """A server that answered already; it is used and left as it is."""
        record = ProcessRecord(name=name, what=what, command="", state="found", address=address)
        self._note(lambda: self._log.process(record))
        self.say(f"{name}: the one at {address} is used")

    def memory(self, peak: int) -> None:
        self._note(lambda: self._log.memory(peak))

    def ended(self, status: int, sentence: str) -> None:
        self._note(lambda: self._log.ended(status, sentence))

    def _note(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            if not self._full:
                self._full = True
                self.say(f"what happens is not noted: {error.filename}: {error.strerror}")
