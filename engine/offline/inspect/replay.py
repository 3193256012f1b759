"""`engine replay`: folds the logs of a run again and compares them with its records, bit for bit.

It needs no model, GPU or tool service, but calls the recipe's reward functions. `first_difference`
compares and is pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from engine.core.rewards.rewards import Rewards
from engine.core.text.codec import HuggingFaceCodec
from engine.core.trajectory.events import AnyEvent, Scored
from engine.core.trajectory.record import Identity, is_orphan, record, with_texts
from engine.core.trajectory.state import State, fold
from engine.errors import StartupError
from engine.serving.journal.logs import LogState, trajectory_of
from engine.serving.journal.reader import JournalReader, StoredRecord, reading
from toolwright.types import Segment, Status, Trajectory
from toolwright.wire import serialize, trajectory_to_proto


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference between a trajectory and its record. position: token in its first sequence."""

    trajectory: str
    what: str
    stored: str
    again: str
    turn: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        turn = "" if self.turn is None else f", turn {self.turn}"
        position = "" if self.position is None else f", position {self.position}"
        return (
            f"{self.trajectory}{turn}{position}: {self.what} is {self.stored} in the record and "
            f"{self.again} now"
        )


@dataclass(slots=True, kw_only=True)
class ReplayResult:
    """Counts of a replay. without_record: folded attempts without a record."""

    groups: int = 0
    trajectories: int = 0
    tokens: int = 0
    rewards: int = 0
    without_record: int = 0
    differences: list[Difference] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Lines for users: the counts, then the first difference."""
        yield (
            f"{self.trajectories} trajectories of {self.groups} groups, {self.tokens} tokens, "
            f"{self.rewards} rewards; {self.without_record} attempts without a record folded"
        )
        if not self.differences:
            yield "identical: ids, masks, log-probs, versions, rewards and all else of each record"
            return
        wrong = len({one.trajectory for one in self.differences})
        yield f"different: {wrong} trajectories, first {self.differences[0]}"


async def replay(run_folder: Path, rewards: Mapping[str, Rewards], policy: Path) -> ReplayResult:
    """Replays everything in the run's journal.

    rewards: by task. policy: folder of tokenizer and config, read only for runs with images. Raises
    StartupError if the journal has no logs, or groups of a task that is not in `rewards`.
    """
    placeholder = _Placeholder(policy)
    done = ReplayResult()
    with reading(run_folder) as reader:
        if not reader.attempts(LogState.COMPLETE):
            raise StartupError(
                f"the run in {run_folder} has no log of a complete group: to replay a run, record "
                "it "
                'with engine.history = "all"'
            )
        for group in reader.groups():
            await _replay_group(reader, group, rewards, placeholder, done)
        for attempt in reader.attempts(LogState.OPEN, LogState.GIVEN_UP):
            try:
                fold(reader.log(attempt.name))
            except ValueError as error:
                done.differences.append(_broken(attempt.name, error))
            done.without_record += 1
    return done


async def score_again(rewards: Rewards, group: Sequence[Trajectory]) -> list[Scored]:
    """Scores of unscored trajectories by the reward functions and the recipe's stop rules.

    Only this function calls them.
    """
    return [
        Scored(
            reward=after.reward,
            parts=tuple(after.reward_parts),
            masked=after.masked,
            outside_baseline=after.outside_baseline,
            anchors=dict(after.anchors),
            weights=after.weights,
            notes=tuple(after.events[len(before.events) :]),
        )
        for before, after in zip(group, await rewards.score(group), strict=True)
    ]


class _Placeholder:
    """The placeholder id of images; the policy is read only for runs with images."""

    def __init__(self, policy: Path) -> None:
        self._folder = policy
        self._known: int | None = None

    def of(self, state: State) -> int | None:
        if self._known is None and state.images:
            mark = HuggingFaceCodec(self._folder).image_mark
            self._known = mark.placeholder if mark else None
        return self._known


async def _replay_group(
    reader: JournalReader,
    group: Sequence[StoredRecord],
    rewards: Mapping[str, Rewards],
    placeholder: _Placeholder,
    done: ReplayResult,
) -> None:
    done.groups += 1
    attempts = [member.attempt for member in group]
    stored_scores: list[Scored | None] = []
    unscored: list[Trajectory] = []
    for member in group:
        stored = member.trajectory()
        stored_scores.append(None)
        unscored.append(_without_score(stored))
        try:
            events = reader.log(member.attempt)
            if not events:
                raise ValueError("it has no log")  # noqa: TRY301 (the same end as a broken one)
            state = fold(events)
            identity = _identity(stored, placeholder.of(state), is_orphan(state, attempts))
            again = record(state, identity)
            unscored[-1] = _for_rewards(state, identity)
        except ValueError as error:
            done.differences.append(_broken(member.attempt, error))
            continue
        done.trajectories += 1
        done.tokens += sum(len(one.token_ids) for one in again.sequences)
        found = first_difference(stored, again)
        if found is not None:
            done.differences.append(found)
        stored_scores[-1] = _first_score(events)
    own = rewards.get(task := unscored[0].task.name)
    if own is None:
        raise StartupError(
            f"the run has groups of tasks.{task}, which the recipe lacks: use the recipe of the run"
        )
    for stored_score, score, member in zip(
        stored_scores, await score_again(own, unscored), group, strict=True
    ):
        if stored_score is None:
            continue
        done.rewards += 1
        wrong = _score_difference(trajectory_of(member.attempt), stored_score, score)
        if wrong is not None:
            done.differences.append(wrong)


def first_difference(stored: Trajectory, again: Trajectory) -> Difference | None:
    """The first difference in tokens, masks, log-probs, versions, rewards or other parts."""
    for one, other in zip(_tokens(stored), _tokens(again), strict=False):
        for what, before, now in zip(_TOKEN, one[1], other[1], strict=True):
            if before != now:
                segment, position = one[0], one[2]
                return Difference(
                    trajectory=stored.id,
                    what=what,
                    stored=str(before),
                    again=str(now),
                    turn=segment.turn,
                    position=position,
                )
    for what, before, now in (
        ("length", _length(stored), _length(again)),
        ("reward", stored.reward.hex(), again.reward.hex()),
        ("reward parts", stored.reward_parts, again.reward_parts),
        ("masked", stored.masked, again.masked),
        ("outside_baseline", stored.outside_baseline, again.outside_baseline),
        ("stop reason", stored.stop_reason.name, again.stop_reason.name),
        ("calls", stored.calls, again.calls),
        ("wire bytes", _wire(stored), _wire(again)),
    ):
        if before != now:
            return Difference(
                trajectory=stored.id, what=what, stored=_short(before), again=_short(now)
            )
    return None


_TOKEN = ("token id", "author", "trainable", "log-prob", "weight version")


def _tokens(trajectory: Trajectory) -> Iterator[tuple[Segment, tuple[object, ...], int]]:
    """(segment, compared values, position) of each token of all sequences."""
    for sequence in trajectory.sequences:
        position = 0
        for one in sequence.segments:
            logprobs = one.logprobs or [None] * len(one.token_ids)
            for token, logprob in zip(one.token_ids, logprobs, strict=True):
                bits = None if logprob is None else logprob.hex()  # NaN and -0.0 too
                yield (
                    one,
                    (token, one.author.name, one.trainable, bits, one.weight_version),
                    position,
                )
                position += 1


def _length(trajectory: Trajectory) -> int:
    return sum(len(one.token_ids) for one in trajectory.sequences)


def _wire(trajectory: Trajectory) -> bytes:
    return serialize(trajectory_to_proto(trajectory))


def _first_score(events: Sequence[AnyEvent]) -> Scored | None:
    """The score of the reward function; a group hook may have written a later one."""
    by_function = [e for e in events if isinstance(e, Scored) and not e.hooked]
    return by_function[-1] if by_function else None


def _score_difference(trajectory: str, stored: Scored, again: Scored) -> Difference | None:
    for what, before, now in (
        ("reward", stored.reward.hex(), again.reward.hex()),
        ("reward parts", stored.parts, again.parts),
        ("masked", stored.masked, again.masked),
        ("outside_baseline", stored.outside_baseline, again.outside_baseline),
        ("anchors", stored.anchors, again.anchors),
        ("weights", stored.weights, again.weights),
        ("events of the reward", stored.notes, again.notes),
    ):
        if before != now:
            return Difference(
                trajectory=trajectory,
                what=f"{what} (functions called again)",
                stored=_short(before),
                again=_short(now),
            )
    return None


def _for_rewards(state: State, identity: Identity) -> Trajectory:
    """The trajectory as reward functions saw it: without a score."""
    return with_texts(record(structs.replace(state, rewarded=None, hooked=None), identity), state)


def _without_score(stored: Trajectory) -> Trajectory:
    errored = stored.status is Status.ERRORED
    return replace(stored, reward=0.0, reward_parts=(), masked=errored, anchors={})


def _identity(stored: Trajectory, placeholder: int | None, orphan: bool) -> Identity:
    return Identity(
        trajectory_id=stored.id,
        group_id=stored.group_id,
        index=stored.index,
        attempt=stored.attempt,
        task=stored.task,
        tokenizer_hash=stored.tokenizer_hash,
        placeholder=placeholder,
        orphan=orphan,
    )


def _broken(attempt: str, error: ValueError) -> Difference:
    return Difference(
        trajectory=trajectory_of(attempt), what="its log", stored="complete", again=str(error)
    )


def _short(value: object) -> str:
    text = value.hex()[:16] if isinstance(value, bytes) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
