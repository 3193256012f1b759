"""Which sampler gets a request: by the measured time per token and by the queue. Pure.

The estimate for a request on a server is its recent seconds per token times the tokens. It grows
with the ratio of the present queue to the queue during the measurement. It never falls below the
measurement: a crowded server may turn out quicker once it is empty, a slow server will not. An
unmeasured server counts as the quickest one until its first tokens come.

Invariants
- A trajectory stays on its server (prefix cache) while no other is clearly better.
- A server with recent failures gets a request only if all others have them too.
- `queued` of a server is the sum of the tokens that its requests in flight will likely bring.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MEMORY = 0.99
"""Weight of earlier measurements for each chunk: some hundred chunks show a server's speed."""
FIRST_GUESS = 128.0
"""Expected tokens of an action before the first one ended."""
LENGTH_MEMORY = 0.98
"""The same for the length of actions: the last fifty."""
PREFILL = 50.0
"""Tokens of a prompt that a server reads in the time in which it writes one token. A round number
of the right size from small CPUs to large GPUs, used if a prefix is not cached yet."""
CLEARLY = 2.0
"""Factor by which a move must shorten the remaining time. Estimates are right within some ten
percent, and a move costs the prefix cache."""
LEAST_GAIN = 0.25
"""Seconds that a move must save: less is not worth a line in the log."""
MANY_STREAMS = 1_000
LARGE_CHUNK, LONGEST_CHUNK_S = 32, 2.0
"""Tokens of a chunk while so many streams are read, if they come within so many seconds. Chunks of
8 then take most of a core."""
FORGET_SECONDS = 15.0
"""Half-life of an idle server's measured slowness. So an occasional request finds out whether it
has recovered."""
FIRST_SUSPICION = 1.0
LONGEST_SUSPICION = 60.0
"""Seconds for which a failed server is avoided, doubled by every failure in a row."""


@dataclass(slots=True)
class ServerLoad:
    """Measurements of one server."""

    in_flight: int = 0
    queued: float = 0.0
    others_in_flight: int = 0
    """Requests of other processes that sample for the same run."""
    others_queued: float = 0.0
    seconds: float = 0.0
    """Recently measured, weighted by MEMORY, over `tokens`."""
    tokens: float = 0.0
    usual: float = 0.0
    """Queue during that measurement."""
    idle_since: float | None = None
    suspicion: float = 0.0
    suspect_until: float = 0.0

    @property
    def pace(self) -> float | None:
        """Seconds per token of one stream; None before the first."""
        return self.seconds / self.tokens if self.tokens > 0 else None

    @property
    def queue(self) -> float:
        """Tokens that the requests in flight of all processes will likely bring."""
        return self.queued + self.others_queued


class Router:
    """The servers of a run, by name. Times are seconds of one clock that the caller reads."""

    def __init__(self) -> None:
        self.loads: dict[str, ServerLoad] = {}
        self._length = FIRST_GUESS

    def add(self, name: str) -> None:
        self.loads[name] = ServerLoad()

    def expected(self, budget: int) -> float:
        """Tokens that an action with this budget will likely bring."""
        return min(self._length, float(budget))

    def ended(self, tokens: int) -> None:
        """Records the length of an action that ended."""
        self._length = LENGTH_MEMORY * self._length + (1 - LENGTH_MEMORY) * max(tokens, 1)

    def chunk(self, name: str, usual: int) -> int:
        """Tokens of a chunk of the next stream from `name`: `usual`, or more if the engine reads
        many streams."""
        pace = self.loads[name].pace
        many = sum(load.in_flight for load in self.loads.values()) >= MANY_STREAMS
        if many and pace is not None and pace * LARGE_CHUNK <= LONGEST_CHUNK_S:
            return max(usual, LARGE_CHUNK)
        return usual

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
        """Whether checking each request of this server is worth the effort."""
        pace, best = self.loads[name].pace, self._best(among)
        return pace is not None and best is not None and pace > CLEARLY * best

    def begin(self, name: str, tokens: float) -> None:
        """Counts a request that goes to `name` and will likely bring `tokens`."""
        load = self.loads[name]
        load.in_flight += 1
        load.queued += tokens
        load.idle_since = None

    def took(self, name: str, tokens: float) -> None:
        """Counts expected tokens that came."""
        self.loads[name].queued -= tokens

    def end(self, name: str, left: float, now: float) -> None:
        """Counts a request that is over; `left` of its expected tokens did not come."""
        load = self.loads[name]
        load.in_flight -= 1
        load.queued -= left
        if load.in_flight == 0:
            load.queued = 0.0  # otherwise rounding errors would add up
            load.idle_since = now

    def measured(self, name: str, seconds: float, tokens: float) -> None:
        """Records that a stream of `name` brought `tokens` in `seconds`; no tokens: it stands
        still."""
        load = self.loads[name]
        load.seconds = MEMORY * load.seconds + seconds
        load.tokens = MEMORY * load.tokens + tokens
        load.usual = MEMORY * load.usual + (1 - MEMORY) * load.queue if load.usual else load.queue

    def failed(self, name: str, now: float) -> bool:
        """Records a failed request to `name`. Returns whether that is news: requests that fail
        together are one failure."""
        load = self.loads[name]
        if now < load.suspect_until:
            return False
        load.suspicion = min(max(FIRST_SUSPICION, 2 * load.suspicion), LONGEST_SUSPICION)
        load.suspect_until = now + load.suspicion
        return True

    def served(self, name: str) -> None:
        """Records a request that succeeded."""
        self.loads[name].suspicion = 0.0

    def fresh(self, name: str) -> None:
        """Forgets the measurements of a restarted server."""
        load = self.loads[name]
        load.seconds = load.tokens = load.usual = 0.0
        load.suspicion = load.suspect_until = 0.0

    def _cost(
        self, name: str, among: Sequence[str], current: str | None, tokens: float, prompt: int,
        now: float,
    ) -> tuple[float, int]:  # fmt: skip
        return self._estimate(name, among, tokens, 0 if name == current else prompt, now), (
            self.loads[name].in_flight + self.loads[name].others_in_flight
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
        crowd = max(1.0, (load.queue + tokens) / (load.usual + tokens))
        return pace * (tokens * crowd + unread / PREFILL)

    def _best(self, among: Iterable[str]) -> float | None:
        paces = (self.loads[name].pace for name in among)
        return min((max(pace, 1e-9) for pace in paces if pace is not None), default=None)
