"""`bench retokenisation`: what counts as changed, whose a token is, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.errors import BenchError
from bench.retokenisation.encoder import FolderEncoder
from bench.retokenisation.joint import Retokened, retokened
from bench.retokenisation.recordings import groups_of
from bench.retokenisation.rows import by_index, by_text
from learner.training.batch import Row, rows_of
from tests.support.policy import write_policy
from toolwright import types as t
from toolwright.trajectory_files import write_trajectories

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "golden.json").read_text(encoding="utf-8")
)["cases"]


class LongestMatch:
    """The toy tokenizer of the published example."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._ids = vocabulary
        self._words = {number: word for word, number in vocabulary.items()}

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(self._words[number] for number in token_ids)

    def encode(self, text: str) -> tuple[list[int], list[int]]:
        ids: list[int] = []
        begins: list[int] = []
        place = 0
        while place < len(text):
            word = max((w for w in self._ids if text.startswith(w, place)), key=len)
            ids.append(self._ids[word])
            begins.append(place)
            place += len(word)
        return ids, begins


def example(name: str) -> dict[str, object]:
    cases = GOLDEN["verltool.retokenization"]
    return next(case for case in cases if case["name"] == name)


def conversation(*runs: tuple[str, Sequence[int]]) -> t.Sequence:
    """P, M and T runs: prompt, what the policy wrote, what a tool said."""
    authors = {"P": t.Author.PROMPT, "M": t.Author.MODEL, "T": t.Author.TOOL}
    segments: list[t.Segment] = []
    turn = 0
    for who, token_ids in runs:
        by_policy = who == "M"
        segments.append(
            t.Segment(
                author=authors[who],
                token_ids=t.ids(token_ids),
                turn=turn,
                logprobs=t.floats(-float(number) for number in token_ids) if by_policy else None,
                trainable=by_policy,
            )
        )
        turn += who == "T"
    return t.Sequence(id="s", segments=tuple(segments))


def trajectory(
    sequence: t.Sequence, name: str = "t", group: str = "g", **changes: object
) -> t.Trajectory:
    values: dict[str, object] = {
        "task": t.Task(id="q"), "status": t.Status.COMPLETED,
        "stop_reason": t.StopReason.ANSWERED, "sequences": (sequence,), **changes,
    }  # fmt: skip
    return t.Trajectory(id=name, group_id=group, **values)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> FolderEncoder:
    """Bytes, special tokens, and the merges `/run` and `>x`."""
    return FolderEncoder(write_policy(tmp_path_factory.mktemp("policy")))


def ids(encoder: FolderEncoder, text: str) -> list[int]:
    return encoder.encode(text)[0]


def test_the_published_example_changes_where_action_and_observation_meet() -> None:
    case = example("boundary_merges")
    toy = LongestMatch(case["input"]["vocab"])  # type: ignore[index]
    action, seen = (toy.encode(case["input"][name])[0] for name in ("action", "obs"))  # type: ignore[index]
    found = retokened("t", 0, conversation(("M", action), ("T", seen)), toy)
    assert list(found.ours) == case["expected"]["concat"]  # type: ignore[index]
    assert list(found.joint) == case["expected"]["joint"]  # type: ignore[index]
    assert (found.same, found.first) == (False, 2)
    assert (found.changed_by_place, found.changed_by_alignment) == (2, 2)
    assert found.changed_of_policy == 1, "the bracket; what the tool said is not the policy's"


def test_the_published_example_without_an_observation_changes_nothing() -> None:
    case = example("empty_obs")
    toy = LongestMatch(case["input"]["vocab"])  # type: ignore[index]
    action = toy.encode(case["input"]["action"])[0]  # type: ignore[index]
    found = retokened("t", 0, conversation(("M", action)), toy)
    assert (found.same, found.first, found.changed_by_place, found.lost) == (True, None, 0, 0)


def test_one_token_more_changes_all_places_behind_it_and_one_alignment(
    byte_level: FolderEncoder,
) -> None:
    # The policy wrote `/`, `r`, `u`, `n` one by one; the tokenizer has one token for them.
    spelled = [byte_level.encode(letter)[0][0] for letter in "/run"]
    rest = ids(byte_level, "abcdefgh")
    found = retokened("t", 0, conversation(("P", [1, 2]), ("M", spelled + rest)), byte_level)
    assert len(found.joint) == len(found.ours) - 3
    assert found.changed_by_place == len(spelled + rest)
    assert found.changed_by_alignment == len(spelled)
    assert found.first == 2


def test_a_merge_over_the_boundary_takes_the_prefix_from_the_next_ids(
    byte_level: FolderEncoder,
) -> None:
    # The action ends in `>`, the observation begins with `x`, and `>x` is one token.
    action, seen = ids(byte_level, "a>"), ids(byte_level, "xy")
    last = ids(byte_level, "done")
    plain = conversation(("P", ids(byte_level, "q")), ("M", action), ("T", seen), ("M", last))
    found = retokened("t", 0, plain, byte_level)
    assert (found.turns, found.lost) == (2, 1), "what it wrote last is still there at the end"
    assert (found.answered, found.cut) == (1, 1), "the last turn has no answer"
    cut = conversation(("P", ids(byte_level, "q>")), ("M", ids(byte_level, "xz")))
    assert retokened("t", 0, cut, byte_level).lost == 1
    assert retokened("t", 0, cut, byte_level).answered == 0


def test_what_the_policy_wrote_is_told_by_the_first_letter(byte_level: FolderEncoder) -> None:
    runs = conversation(
        ("P", ids(byte_level, "q>")), ("M", ids(byte_level, "xz")), ("T", ids(byte_level, "é!"))
    )
    found = retokened("t", 0, runs, byte_level)
    told = [
        byte_level.decode([one]) for one, own in zip(found.joint, found.policy, strict=True) if own
    ]
    assert told == ["z"], "`>x` begins in the prompt"


@pytest.mark.parametrize(
    "runs",
    [
        conversation(),
        conversation(("P", ())),
        conversation(("M", [200, 130, 255]), ("T", [201])),  # no UTF-8
        conversation(("P", [0] * 3000), ("M", [1] * 3000)),
    ],
    ids=["nothing", "empty", "broken bytes", "long"],
)
def test_what_no_text_can_hold_is_counted_and_breaks_nothing(
    byte_level: FolderEncoder, runs: t.Sequence
) -> None:
    found = retokened("t", 0, runs, byte_level)
    assert 0 <= found.changed_by_alignment <= found.changed_by_place <= len(found.ours)
    assert len(found.policy) == len(found.joint)


def row_and_joint(byte_level: FolderEncoder) -> tuple[Row, Retokened]:
    spelled = [byte_level.encode(letter)[0][0] for letter in "/run"]
    runs = conversation(
        ("P", ids(byte_level, "qq")),
        ("M", spelled + ids(byte_level, "ab")),
        ("T", ids(byte_level, "[42]")),
        ("M", ids(byte_level, "end")),
    )
    (row,) = rows_of(trajectory(runs), temperature=1.0)
    return row, retokened("t", 0, runs, byte_level)


def test_left_at_their_index_masks_and_log_probs_are_other_tokens(
    byte_level: FolderEncoder,
) -> None:
    row, joint = row_and_joint(byte_level)
    shifted = by_index(row, joint)
    assert shifted is not None
    assert shifted.tokens.tolist() == list(joint.joint)[: len(shifted.tokens)]
    assert (shifted.target == row.target[: len(shifted.target)]).all()
    seen = ids(byte_level, "[42]")
    assert set(shifted.tokens[shifted.target]) & set(seen), "what the tool said is trained on"


def test_by_the_text_the_mask_follows_what_the_policy_wrote(byte_level: FolderEncoder) -> None:
    row, joint = row_and_joint(byte_level)
    followed = by_text(row, joint)
    assert followed is not None
    assert byte_level.decode(followed.tokens[followed.target].tolist()) == "/runabend"
    assert followed.count == row.count - 3
    assert np.unique(followed.temperature).tolist() == [1.0]


def test_a_row_that_keeps_no_target_is_none(byte_level: FolderEncoder) -> None:
    row, joint = row_and_joint(byte_level)
    assert by_index(row, replace(joint, joint=joint.joint[:2])) is None
    assert by_text(row, replace(joint, policy=(False,) * len(joint.joint))) is None


def test_groups_are_the_newest_and_leave_masked_members_out(tmp_path: Path) -> None:
    runs = conversation(("P", [1]), ("M", [2]))
    written = [trajectory(runs, f"t{n}", f"g{n // 2}", masked=n == 3) for n in range(6)]
    write_trajectories(tmp_path / "a.trajectories", written)
    found = groups_of(tmp_path / "a.trajectories", 3, tmp_path)
    assert [[one.id for one in group.trajectories] for group in found] == [["t2"], ["t4", "t5"]]
    assert [group.id for group in groups_of(tmp_path / "a.trajectories", 1, tmp_path)] == ["g2"]


def test_what_another_tokenizer_wrote_is_refused(tmp_path: Path) -> None:
    policy = write_policy(tmp_path / "policy")
    written = trajectory(conversation(("M", [2])), tokenizer_hash="0" * 64)
    write_trajectories(tmp_path / "a.trajectories", [written])
    with pytest.raises(BenchError, match="was written with tokenizer"):
        groups_of(tmp_path / "a.trajectories", 5, policy)


@pytest.mark.parametrize("content", [None, b"\xff\xff\xff\xff", b"\x05ab"])
def test_what_is_no_recording_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "a.trajectories"
    if content is not None:
        file.write_bytes(content)
    policy = write_policy(tmp_path / "policy")
    done = CliRunner().invoke(app, ["retokenisation", str(file), "--policy", str(policy)])
    assert done.exit_code == 1
    assert done.output.startswith("bench: no trajectories in")
    assert len(done.output.strip().splitlines()) == 1


def test_the_command_counts_a_file(tmp_path: Path) -> None:
    policy = write_policy(tmp_path / "policy")
    encoder = FolderEncoder(policy)
    spelled = [encoder.encode(letter)[0][0] for letter in "/run"]
    changed = conversation(("P", ids(encoder, "q")), ("M", spelled))
    same = conversation(("P", ids(encoder, "q")), ("M", ids(encoder, "abc")))
    file = tmp_path / "a.trajectories"
    write_trajectories(file, [trajectory(changed, "t0"), trajectory(same, "t1")])
    out = tmp_path / "out.json"
    done = CliRunner().invoke(
        app, ["retokenisation", str(file), "--policy", str(policy), "--json", str(out)]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(out.read_text(encoding="utf-8"))
    assert (told["sequences"], told["ids"], told["sequences_changed"]) == (2, 9, 0.5)
    assert told["changed_by_place"] == told["changed_by_alignment"] == pytest.approx(4 / 9)
    assert told["changed_of_policy"] == pytest.approx(4 / 7)
    assert (told["turns"], told["changed_by_turn"], told["gradients"]) == (2, 0, None)
