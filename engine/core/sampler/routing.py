"""Which sampler gets a request: by the measured time a token, and by what is queued. Pure.

The estimate for a request of `tokens` on a server: its seconds a token, as measured lately on its
streams, times the tokens; longer in the ratio by which more is queued than when that was measured.
It is never taken for shorter than measured: a server that was crowded may turn out quicker once it
is empty, and one that is slow by itself will not. What a server is not measured on is hoped for: it
counts as the quickest one until its first tokens tell.

Invariants
- A trajectory stays on its server (prefix cache) while no other is clearly better.
- A server with failures of late gets a request only where all others have them too.
- `queued` of a server is the sum of what its requests in flight are still expected to bring.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MEMORY = 0.99
"""Weight of what was measured before, a chunk: some hundred chunks tell a server's speed."""
FIRST_GUESS = 128.0
"""Tokens of an action before the first one ended."""
LENGTH_MEMORY = 0.98
"""The same for the length of actions: the last fifty."""
PREFILL = 50.0
"""Tokens of a prompt that a server reads in the time of one token that it writes: a round number
of the right size from small CPUs to large GPUs, used where a prefix is not cached yet."""
CLEARLY = 2.0
"""A move must halve the time that is left: estimates are right within some ten percent, and a move
costs the prefix cache."""
LEAST_GAIN = 0.25
"""Seconds that a move must save: below that it is not worth a line in the log."""
FORGET_SECONDS = 15.0
"""An idle server's measured slowness halves in such a time, so that one that has recovered is
found out, by a request now and then."""
FIRST_SUSPICION = 1.0
LONGEST_SUSPICION = 60.0
"""Seconds for which a server that failed is passed over, doubled by every failure in a row."""


@dataclass(slots=True)
class Load:
    """What is known of one server."""

    in_flight: int = 0
    queued: float = 0.0
    seconds: float = 0.0
    """Measured lately, weighted by MEMORY, over `tokens`."""
    tokens: float = 0.0
    usual: float = 0.0
    """What was queued while that was measured."""
    idle_since: float | None = None
    suspicion: float = 0.0
    suspect_until: float = 0.0

    @property
    def pace(self) -> float | None:
        """Seconds a token of one stream; None before the first."""
        return self.seconds / self.tokens if self.tokens > 0 else None


class Router:
    """The servers of a run, by name. Times are seconds of one clock that the caller reads."""

    def __init__(self) -> None:
        self.loads: dict[str, Load] = {}
        self._length = FIRST_GUESS

    def add(self, name: str) -> None:
        self.loads[name] = Load()

    def expected(self, budget: int) -> float:
        """Tokens that an action with such a budget will bring."""
        return min(self._length, float(budget))

    def ended(self, tokens: int) -> None:
        """An action ended with so many tokens."""
        self._length = LENGTH_MEMORY * self._length + (1 - LENGTH_MEMORY) * max(tokens, 1)

    def choose(
        self, among: Sequence[str], *, current: str | None, tokens: float, prompt: int, now: float
    ) -> str:
        """The server for a request of `tokens`; its `prompt` tokens are cached on `current`."""
        trusted = [name for name in among if self.loads[name].suspect_until <= now] or among
        best = min(trusted, key=lambda name: self._cost(name, among, current, tokens, prompt, now))
        if current is None or current not in trusted or current == best:
            return best
        return best if self._worth(current, best, among, tokens, prompt, now) else current

    def better(
        self, current: str, among: Sequence[str], *, tokens: float, prompt: int, now: float
    ) -> bool:
        """Whether a request that has `tokens` to go should leave `current`."""
        chosen = self.choose(among, current=current, tokens=tokens, prompt=prompt, now=now)
        return chosen != current and self._worth(current, chosen, among, tokens, prompt, now)

    def lags(self, name: str, among: Sequence[str]) -> bool:
        """Whether a look at each request of this server is worth its while."""
        pace, best = self.loads[name].pace, self._best(among)
        return pace is not None and best is not None and pace > CLEARLY * best

    def begin(self, name: str, tokens: float) -> None:
        """A request that is expected to bring `tokens` goes to `name`."""
        load = self.loads[name]
        load.in_flight += 1
        load.queued += tokens
        load.idle_since = None

    def took(self, name: str, tokens: float) -> None:
        """So many of the expected tokens came."""
        self.loads[name].queued -= tokens

    def end(self, name: str, left: float, now: float) -> None:
        """A request is over; `left` of what was expected of it did not come."""
        load = self.loads[name]
        load.in_flight -= 1
        load.queued -= left
        if load.in_flight == 0:
            load.queued = 0.0  # not a sum of rounding errors
            load.idle_since = now

    def measured(self, name: str, seconds: float, tokens: float) -> None:
        """A stream of `name` brought `tokens` in `seconds`; none: it stands still."""
        load = self.loads[name]
        load.seconds = MEMORY * load.seconds + seconds
        load.tokens = MEMORY * load.tokens + tokens
        load.usual = MEMORY * load.usual + (1 - MEMORY) * load.queued if load.usual else load.queued

    def failed(self, name: str, now: float) -> bool:
        """A request to `name` failed; whether that is news. Requests that fail together are one
        failure."""
        load = self.loads[name]
        if now < load.suspect_until:
            return False
        load.suspicion = min(max(FIRST_SUSPICION, 2 * load.suspicion), LONGEST_SUSPICION)
        load.suspect_until = now + load.suspicion
        return True

    def served(self, name: str) -> None:
        """A request ended as it should."""
        self.loads[name].suspicion = 0.0

    def fresh(self, name: str) -> None:
        """The server was started anew: what was measured is forgotten."""
        load = self.loads[name]
        load.seconds = load.tokens = load.usual = 0.0
        load.suspicion = load.suspect_until = 0.0

    def _cost(
        self, name: str, among: Sequence[str], current: str | None, tokens: float, prompt: int,
        now: float,
    ) -> tuple[float, int]:  # fmt: skip
        return self._estimate(name, among, tokens, 0 if name == current else prompt, now), (
            self.loads[name].in_flight
        )

    def _worth(
        self, current: str, other: str, among: Sequence[str], tokens: float, prompt: int, now: float
    ) -> bool:
        here = self._estimate(current, among, tokens, 0, now)
        there = self._estimate(other, among, tokens, prompt, now)
        return here > CLEARLY * there and here - there > LEAST_GAIN

    def _estimate(
        self, name: str, among: Iterable[str], tokens: float, unread: int, now: float
    ) -> float:
        """Seconds until a request of `tokens` after `unread` new tokens is done."""
        load = self.loads[name]
        best = self._best(among) or 1.0
        pace = load.pace
        if pace is None:
            pace = best
        elif load.idle_since is not None:
            halvings = min((now - load.idle_since) / FORGET_SECONDS, 64.0)
            pace = max(best, pace * 0.5**halvings)
        crowd = max(1.0, (load.queued + tokens) / (load.usual + tokens))
        return pace * (tokens * crowd + unread / PREFILL)

    def _best(self, among: Iterable[str]) -> float | None:
        paces = (self.loads[name].pace for name in among)
        return min((max(pace, 1e-9) for pace in paces if pace is not None), default=None)
