"""Logs of attempts: Hypothesis strategies that walk as a turn loop may, and one plain example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from engine.core.trajectory.events import (
    Acted,
    Answered,
    AnyEvent,
    Appended,
    Called,
    Ended,
    Forked,
    Noted,
    Opened,
    Rewritten,
    Scored,
    Streamed,
)
from engine.core.trajectory.state import fold
from engine.types import SessionRef, ToolSpec
from tests.support.records import FLOAT, FLOAT32, INT32, optional
from tests.support.records import finishes as finish_reasons
from tests.support.records import outcomes as outcomes_of
from tests.support.records import sampling as sampling_params
from tests.support.records import tuples as up_to
from toolwright import types as t

PLACEHOLDER = 7
"""Stands for an image in prompts and observations."""
TEXT = st.text("aé\U0001f600\n<", max_size=3)
NAME = st.text("ab", min_size=1, max_size=3)
OBJECT = st.dictionaries(
    NAME, st.none() | st.booleans() | FLOAT | TEXT | st.lists(TEXT, max_size=1), max_size=2
)
V0, V1 = t.WeightVersion(lineage="a", step=0), t.WeightVersion(lineage="a", step=1)


def tuples(strategy: st.SearchStrategy[Any], size: int = 1) -> st.SearchStrategy[Any]:
    return up_to(strategy, size)


_SECONDS = st.floats(0, 1e6)
_STAMP = st.integers(0, 2**62)
_COUNT = st.integers(0, 2**20)
versions = st.builds(t.WeightVersion, lineage=NAME, step=_COUNT)
blobs = st.builds(t.BlobRef, sha256=TEXT, media_type=TEXT, size=_COUNT)
notes = st.builds(t.Event, kind=TEXT, turn=_COUNT, data=OBJECT)
tools = st.builds(
    ToolSpec,
    name=NAME,
    usage=TEXT,
    arguments_schema=OBJECT,
    stop_strings=tuples(TEXT),
    parallel_calls=st.booleans(),
)
sessions = tuples(
    st.builds(
        SessionRef,
        service=NAME,
        session_id=NAME,
        endpoint=TEXT,
        tools=tuples(tools),
        cancels=st.booleans(),
    )
)
outcomes = outcomes_of(TEXT, blobs, seconds=_SECONDS, count=_COUNT, tool=TEXT)
scores = st.builds(
    Scored,
    reward=FLOAT,
    parts=tuples(st.builds(t.RewardPart, name=TEXT, value=FLOAT, turn=optional(_COUNT))),
    masked=st.booleans(),
    outside_baseline=st.booleans(),
    anchors=st.dictionaries(_COUNT, tuples(TEXT), max_size=2),
    weights=st.dictionaries(TEXT, FLOAT, max_size=1),
    notes=tuples(notes),
    seconds=_SECONDS,
)
ends = st.builds(
    Ended, reason=st.sampled_from(t.StopReason), error=st.just("") | TEXT, seconds=_SECONDS
)


@st.composite
def logs(draw: st.DrawFn, *, ended: bool | None = None) -> list[AnyEvent]:
    """A log in an order that an attempt may have; ended: whether it is over, None = either."""
    walk = _Walk(draw)
    if draw(st.integers(0, 9)) or ended is False:
        walk.open()
        for turn in range(draw(st.integers(0, 3))):
            if not walk.turn(turn):
                break
    if ended or (ended is None and draw(st.booleans())):
        walk.events.append(draw(ends))
        walk.events.extend(draw(st.lists(scores, max_size=2)))
    return walk.events


class _Walk:
    """One attempt; every method does what the turn loop may do next."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.events: list[AnyEvent] = []
        self._images = 0

    def open(self) -> None:
        token_ids, images = self._shown()
        self._add(
            Opened(
                sessions=self._draw(sessions),
                prompt=token_ids,
                sampling=self._draw(sampling_params),
                images=images,
                seconds=self._draw(_SECONDS),
                clock_s=self._draw(_SECONDS),
            )
        )

    def turn(self, turn: int) -> bool:
        """False where the attempt stops in the middle of it."""
        if self._maybe():
            self._add(Noted(note=self._draw(notes)))
        if self._maybe():
            forked = Forked(
                parent=self._draw(NAME), events=1, offset=1, sessions=self._draw(sessions)
            )
            self._add(forked)
        for _ in range(self._draw(st.integers(0, 2))):
            token_ids, logprobs, runs = self._written()
            self._add(
                Streamed(
                    token_ids=token_ids,
                    logprobs=logprobs,
                    versions=runs,
                    prompt_tokens=self._draw(_COUNT),
                    prompt_ids=self._draw(optional(st.lists(INT32, max_size=3).map(t.ids))),
                )
            )
        calls = self._draw(st.integers(0, 3))
        early = self._draw(st.integers(0, calls))
        self._calls(turn, range(early))
        if not self._draw(st.integers(0, 9)):
            return False
        token_ids, logprobs, runs = self._written()
        self._add(
            Acted(
                token_ids=token_ids,
                logprobs=logprobs,
                versions=runs,
                finish=self._draw(finish_reasons),
                text=self._draw(TEXT),
                stop=self._draw(optional(TEXT)),
                image_tokens=(3,) * self._images if self._maybe() else (),
                seconds=self._draw(_SECONDS),
                asked_ns=self._draw(_STAMP),
                first_ns=self._draw(_STAMP),
                acted_ns=self._draw(_STAMP),
            )
        )
        self._calls(turn, range(early, calls))
        self._answers()
        if not self._draw(st.integers(0, 9)):
            return False
        if self._maybe() and self._maybe():
            self._rewrite()  # in place of the observation
            return True
        pieces = self._draw(st.integers(1, 2))
        for piece in range(pieces):
            token_ids, images = self._shown()
            self._add(
                Appended(
                    token_ids=token_ids,
                    author=self._draw(st.sampled_from([t.Author.TOOL, t.Author.SYSTEM])),
                    images=images,
                    fitted=self._draw(st.booleans()),
                    last=piece == pieces - 1,
                    seconds=self._draw(_SECONDS),
                )
            )
        if self._maybe() and self._maybe():
            self._rewrite()
        return True

    def _rewrite(self) -> None:
        before = fold(self.events).token_ids
        shared = self._draw(st.integers(0, len(before)))
        self._images = before[:shared].count(PLACEHOLDER)
        shown = self._images
        token_ids, images = self._shown()
        self._add(
            Rewritten(
                shared=shared,
                token_ids=token_ids,
                shown=shown,
                images=images,
                cause=self._draw(TEXT),
            )
        )

    def _calls(self, turn: int, indices: range) -> None:
        for index in indices:
            called = Called(
                call_id=f"{turn}/{index}",
                turn=turn,
                index=index,
                action=self._draw(TEXT),
                tool=self._draw(TEXT),
                arguments=self._draw(TEXT),
                stop_read_ns=self._draw(_STAMP),
                dispatched_ns=self._draw(_STAMP),
            )
            self._add(called)
            self._open = [*getattr(self, "_open", []), called.call_id]
            if self._maybe():
                self._answer(self._draw(st.sampled_from(self._open)))

    def _answers(self) -> None:
        for call_id in self._draw(st.permutations(getattr(self, "_open", []))):
            self._answer(call_id)

    def _answer(self, call_id: str) -> None:
        self._open.remove(call_id)
        self._add(
            Answered(
                call_id=call_id,
                outcome=self._draw(outcomes),
                new_tools=self._draw(tuples(tools, 1)),
                result_ns=self._draw(_STAMP),
            )
        )

    def _shown(self) -> tuple[t.Ids, tuple[t.BlobRef, ...]]:
        """Tokens of a prompt or an observation, with one placeholder for each image."""
        images = self._draw(tuples(blobs, 2))
        plain = INT32.filter(lambda token: token != PLACEHOLDER)
        token_ids = [*self._draw(st.lists(plain, min_size=1, max_size=5))]
        for _ in images:
            token_ids.insert(self._draw(st.integers(0, len(token_ids))), PLACEHOLDER)
        self._images += len(images)
        return t.ids(token_ids), images

    def _written(self) -> tuple[t.Ids, t.Floats, tuple[tuple[t.WeightVersion, int], ...]]:
        """Tokens of the policy; those of one weight version follow each other."""
        runs = tuple((version, n) for version, n in self._draw(_RUNS))
        size = sum(n for _, n in runs)
        written = INT32.filter(lambda token: token != PLACEHOLDER)
        tokens = self._draw(st.lists(written, min_size=size, max_size=size))
        logprobs = self._draw(st.lists(FLOAT32, min_size=size, max_size=size))
        return t.ids(tokens), t.floats(logprobs), runs

    def _maybe(self) -> bool:
        return self._draw(st.booleans())

    def _add(self, event: AnyEvent) -> None:
        self.events.append(event)


_RUNS = st.lists(st.tuples(versions, st.integers(1, 3)), max_size=3)


def example(answer: Sequence[int] = (40, 41), reward: float = 0.5) -> list[AnyEvent]:
    """Two turns with a call between them, two weight versions in the first action, a reward."""
    python = ToolSpec(name="python", stop_strings=("</python>",))
    session = SessionRef(service="py", session_id="s1", endpoint="unix:/t", tools=(python,))
    stop = t.FinishReason(kind=t.FinishKind.STOP, matched_text="</python>")
    return [
        Opened(
            sessions=(session,),
            prompt=t.ids([1, 2, 3]),
            sampling=t.SamplingParams(temperature=1.0),
            seconds=0.25,
        ),
        Acted(
            token_ids=t.ids([10, 11, 12]),
            logprobs=t.floats([-0.5, -0.25, -1.5]),
            versions=((V0, 2), (V1, 1)),
            finish=stop,
            text="<python>6*7</python>",
            stop="</python>",
            seconds=0.5,
        ),
        Called(
            call_id="0/0",
            turn=0,
            index=0,
            action="<python>6*7</python>",
            tool="python",
            service="py",
            stop_read_ns=1_000,
            dispatched_ns=2_000,
        ),
        Answered(
            call_id="0/0",
            outcome=t.CallOutcome(
                observation="42", valid=True, tool="python", queued_s=0.001, run_s=0.02
            ),
            result_ns=25_002_000,
        ),
        Appended(token_ids=t.ids([20, 21]), author=t.Author.TOOL, seconds=0.025),
        Noted(note=t.Event(kind="observation_truncated", turn=0, data={"tokens": 9})),
        Acted(
            token_ids=t.ids(answer),
            logprobs=t.floats([-0.125] * len(answer)),
            versions=((V1, len(answer)),),
            finish=t.FinishReason(kind=t.FinishKind.STOP, matched_token=answer[-1]),
            text="<answer>42</answer>",
            stop="<|im_end|>",
            seconds=0.5,
        ),
        Ended(reason=t.StopReason.ANSWERED, seconds=1.5),
        Scored(
            reward=reward,
            parts=(
                t.RewardPart(name="right", value=reward),
                t.RewardPart(name="tidy", value=0.0, turn=0),
            ),
        ),
    ]
