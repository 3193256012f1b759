"""One action over all its requests: tokens, log-probs, versions, and the callbacks that get them.

Invariants
- `on_action` is called once, inside the read that brought the stop, with the whole action and
  corrected versions. What follows the stop is dropped before.
- `on_mark` is called for each mark as it completes, in order, and before `on_action`.
- All parts that `on_progress` got, joined, are a prefix of the action.
- A later request goes on where the earlier one broke; no token is requested twice.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from engine.core.sampler.policy_sampler import (
    FIRST_PROGRESS_NS,
    LONGEST_PROGRESS_NS,
    GenerateRequest,
)
from engine.core.sampler.stops import StopDetector
from engine.core.sampler.wire.client import ServerUnreachable
from engine.core.sampler.wire.events import Chunk
from engine.types import Codec, Generated, StopHit, VersionRun
from toolwright.types import FinishKind, FinishReason, WeightVersion

_CONTINUED = FinishReason(kind=FinishKind.CONTINUED)


class TokenAction:
    """Tokens of the action that `request` wants."""

    def __init__(
        self, request: GenerateRequest, *, codec: Codec, known: Mapping[str, WeightVersion]
    ) -> None:
        """known: the run's weight versions, by their spelling."""
        self.request = request
        self.token_ids: array[int] = array("i")
        self.logprobs: array[float] = array("f")
        self.generated: Generated | None = None
        """The action that `on_action` got."""
        self.finish: FinishReason | None = None
        self.server_finished = False
        self.heard_ns = 0
        """Time of the last chunk, or of the start of the wait for the first one."""
        self.first_ns = 0
        """Time at which the first token was read."""
        self._known = known
        self._runs: list[VersionRun] = []
        self._tops: list[Sequence[float]] = []
        self._prompt: tuple[int, tuple[int, ...]] | None = None
        """Tokens that the server made of the prompt, as the first chunk reports them."""
        self._cached: int | None = None
        """Prompt tokens that the first request's server had in its cache."""
        self._retractions = self._earlier_retractions = 0
        """Number in the present request, and in those before it."""
        self._marks: list[StopHit] = []
        self._detector = StopDetector(
            request.stops, codec.decode, self._marks.append if request.on_mark else None
        )
        self._base = 0
        self._reported = 0
        self._begun_ns = self._report_ns = 0
        """Begin of the action, and the time of the next report of its progress."""
        received = request.received
        if received is not None:
            self.token_ids.extend(received.token_ids)
            self.logprobs.extend(received.logprobs)
            self._runs.extend(received.versions)
            self._detector.skip(received.token_ids)
            self._reported = len(self.token_ids)

    def begin(self, now_ns: int) -> None:
        """Begins a new request, which goes on from here."""
        self._base = len(self.token_ids)
        self.heard_ns = now_ns
        if not self._begun_ns:
            self._begun_ns = now_ns
            self._report_ns = now_ns + (self.request.progress_ns or FIRST_PROGRESS_NS)
        self.finish = None
        self.server_finished = False
        self._earlier_retractions += self._retractions
        self._retractions = 0

    def on_chunk(self, chunk: Chunk, read_ns: int) -> bool:
        """Takes one chunk and calls back at once for what it completes. Returns False if the rest
        is of no use.

        Raises ServerUnreachable for tokens under weights that this run does not have.
        """
        self.heard_ns = read_ns
        fresh = chunk.token_ids
        hit: StopHit | None = None
        dropped = 0
        if fresh:
            self.first_ns = self.first_ns or read_ns
            version = self._known.get(chunk.weight_version)
            if version is None:
                raise ServerUnreachable(
                    f"it writes under weights {chunk.weight_version!r}, not this run's: "
                    "it was restarted"
                )
            before = len(self.token_ids)
            hit = self._detector.feed(fresh)
            keep = len(fresh) if hit is None else max(0, hit.keep - before)
            dropped = len(fresh) - keep
            if hit is not None and hit.keep < before:
                self._take_back(hit.keep)
                dropped += before - hit.keep
            self.token_ids.extend(fresh[:keep] if dropped else fresh)
            self.logprobs.extend(chunk.logprobs[:keep] if dropped else chunk.logprobs)
            self._tops.extend(chunk.top_logprobs[:keep])
            self._add_run(version, keep)
        if self._prompt is None and chunk.prompt_tokens:
            end = len(chunk.prompt_ids) - self._base
            self._prompt = (chunk.prompt_tokens - self._base, tuple(chunk.prompt_ids[:end]))
            self._cached = chunk.cached_tokens
        self._retractions = max(self._retractions, chunk.retractions)
        if chunk.finish is not None:
            self.server_finished = True
            self.finish = chunk.finish
            self._correct_versions(chunk.weight_spans)
        if self._marks:
            self._report_marks(read_ns)
        if hit is None:
            if read_ns >= self._report_ns:
                self._report_progress(read_ns)
            return True
        self.finish = FinishReason(
            kind=FinishKind.STOP, matched_token=hit.matched_token, matched_text=hit.matched_text
        )
        self.generated = self._made(
            self.finish, stop=hit.matched_text, cut=dropped > 0, read_ns=read_ns
        )
        self.request.on_action(self.generated)
        return False

    def goes_on(self, finish: FinishReason) -> bool:
        """Whether the server ended the action at a stop that does not count: it stands inside a
        string of a call's JSON, or inside a thought."""
        if self.generated is not None or finish.kind is not FinishKind.STOP:
            return False
        return (
            finish.matched_token in self.request.stops.by_token
            or finish.matched_text in self.request.stops.texts
        )

    def whole(self, finish: FinishReason) -> Generated:
        """The whole action, which ended by `finish`; after a stop the action that `on_action`
        got."""
        return self.generated or self._made(finish)

    def _made(
        self, finish: FinishReason, *, stop: str | None = None, cut: bool = False, read_ns: int = 0
    ) -> Generated:
        prompt_tokens, prompt_ids = self._prompt or (0, ())
        return Generated(
            token_ids=self.token_ids,
            logprobs=self.logprobs,
            versions=tuple(self._runs),
            finish=finish,
            stop=stop,
            cut=cut,
            read_ns=read_ns,
            first_ns=self.first_ns,
            prompt_tokens=prompt_tokens,
            prompt_ids=prompt_ids,
            top_logprobs=tuple(self._tops),
            cached_tokens=self._cached,
            retractions=self._earlier_retractions + self._retractions,
        )

    def _report_marks(self, read_ns: int) -> None:
        for hit in self._marks:
            if self.request.on_mark is not None:
                self.request.on_mark(self.token_ids[: hit.keep], hit, read_ns)
        self._marks.clear()

    def report_rest(self) -> None:
        """Gives `on_progress` the tokens that it does not have yet, because no reader goes on."""
        if self.generated is None:
            self._report_progress(self.heard_ns)

    def _report_progress(self, read_ns: int) -> None:
        growing = min(read_ns - self._begun_ns, LONGEST_PROGRESS_NS)
        self._report_ns = read_ns + (self.request.progress_ns or growing)
        start, self._reported = self._reported, max(self._reported, self._detector.sure)
        if self.request.on_progress is None or start == self._reported:
            return
        self.request.on_progress(
            Generated(
                token_ids=self.token_ids[start : self._reported],
                logprobs=self.logprobs[start : self._reported],
                versions=_since(_up_to(self._runs, self._reported), start),
                finish=_CONTINUED,
                read_ns=read_ns,
            )
        )

    def _take_back(self, keep: int) -> None:
        """Drops the tokens after the first `keep`: a stop that waited was the end."""
        gone = len(self.token_ids) - keep
        del self.token_ids[keep:]
        del self.logprobs[keep:]
        del self._tops[max(0, len(self._tops) - gone) :]
        versions = _spelled_out(self._runs)[:keep]
        self._runs = list(_runs(versions))

    def _add_run(self, version: WeightVersion, count: int) -> None:
        if self._runs and (self._runs[-1][0] is version or self._runs[-1][0] == version):
            self._runs[-1] = (version, self._runs[-1][1] + count)
        elif count:
            self._runs.append((version, count))

    def _correct_versions(self, spans: Sequence[tuple[str, int, int]]) -> None:
        """Applies the server's own version spans, which win if a chunk straddled an update."""
        reported = {self._known[version] for version, _, _ in spans if version in self._known}
        if len(reported) <= 1 and reported.issuperset(version for version, _ in self._runs):
            return
        versions = _spelled_out(self._runs)
        for name, start, end in spans:
            if name in self._known:
                first, last = self._base + start, min(self._base + end, len(versions))
                versions[first:last] = [self._known[name]] * max(last - first, 0)
        self._runs = list(_runs(versions))


def _since(runs: Sequence[VersionRun], start: int) -> tuple[VersionRun, ...]:
    """The runs without their first `start` tokens."""
    found: list[VersionRun] = []
    for version, count in runs:
        if count > start:
            found.append((version, count - start))
        start = max(0, start - count)
    return tuple(found)


def _up_to(runs: Sequence[VersionRun], end: int) -> Sequence[VersionRun]:
    """The runs of the first `end` tokens."""
    if sum(count for _, count in runs) <= end:
        return runs
    return _runs(_spelled_out(runs)[:end])


def _spelled_out(runs: Sequence[VersionRun]) -> list[WeightVersion]:
    return [version for version, count in runs for _ in range(count)]


def _runs(versions: Sequence[WeightVersion]) -> tuple[VersionRun, ...]:
    runs: list[VersionRun] = []
    for version in versions:
        if runs and runs[-1][0] == version:
            runs[-1] = (version, runs[-1][1] + 1)
        else:
            runs.append((version, 1))
    return tuple(runs)
