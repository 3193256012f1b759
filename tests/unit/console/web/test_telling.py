"""One trajectory is told letter by letter, token by token, or it is said why not."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from console.web.app import as_json
from console.web.index import queries
from console.web.index.index import Index
from console.web.telling import images
from console.web.telling.images import Image, NoImage, image_of
from console.web.telling.telling import LONGEST, MOST_PIECES, of_record, tell
from console.web.telling.tokens import Spelling, Spellings
from engine.core.images.media import media_of
from engine.serving.journal import blobs
from engine.serving.journal.schema import open_database
from tests.support import records
from tests.support.recorded_runs import CALL, Recorded
from toolwright import types as t
from toolwright.tracing.ids import trace_id
from toolwright.trajectory_files import write_trajectories

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp.exe\u2066 \0 \ud7ff 👩‍👩‍👧 é"


@pytest.fixture
def run(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "run")


def told(run: Recorded, name: str, *, whole: bool = False) -> dict[str, Any]:
    spellings = Spellings(run.folder)
    index = Index(run.folder, run.folder.parent / "index.sqlite", spellings.decoder)
    while index.refresh():
        pass
    row = queries.find(index.file, name)
    assert row is not None
    return tell(run.folder, row, spellings, whole=whole)


def test_who_wrote_which_token_with_its_probability(run: Recorded) -> None:
    run.journal([run.trajectory("g0-0", wrote="é!")])
    told_ = told(run, "g0-0")
    assert told_["fate"] == "offered"
    segments = told_["record"]["sequences"][0]["segments"]
    assert [one["author"] for one in segments] == ["prompt", "model", "tool", "model"]
    assert segments[2]["text"] == "<result> 42</result>"
    assert segments[3]["pieces"] == ["", "é", "!"], "half a character is in no token of its own"
    assert segments[3]["logprobs"][0] == pytest.approx(-2.30259, abs=1e-5)
    assert segments[3]["version"] == "ab.3"
    (call,) = told_["record"]["calls"]
    assert call["seconds"] == {"dispatched": 1e-6, "queued": 0.001, "run": 0.25, "answered": 0.3}
    assert call["action"] == {"text": CALL.action}


def test_what_is_hostile_is_told_as_it_was_written(run: Recorded) -> None:
    call = replace(CALL, tool="<b>", outcome=replace(CALL.outcome, observation=HOSTILE))
    run.journal([run.trajectory("g0-0", wrote=HOSTILE, calls=(call,))])
    record = told(run, "g0-0")["record"]
    assert "".join(record["sequences"][0]["segments"][3]["pieces"]) == HOSTILE
    assert record["calls"][0]["observation"]["text"] == HOSTILE
    assert json.loads(as_json(record)) == record


def test_long_texts_are_cut_unless_all_is_asked_for(run: Recorded) -> None:
    line = "x" * (10 << 20)
    call = replace(CALL, outcome=replace(CALL.outcome, observation=line))
    many = run.segment(t.Author.MODEL, "y" * (MOST_PIECES + 1))
    sequence = t.Sequence(id="s", segments=(many,))
    run.journal([run.trajectory("g0-0", calls=(call,), sequences=(sequence,))])
    record = told(run, "g0-0")["record"]
    assert record["calls"][0]["observation"] == {"text": line[:LONGEST], "length": len(line)}
    assert record["sequences"][0]["segments"][0]["text"] == "y" * (MOST_PIECES + 1)
    assert "pieces" not in record["sequences"][0]["segments"][0]
    whole = told(run, "g0-0", whole=True)["record"]
    assert whole["calls"][0]["observation"] == {"text": line}


def test_without_its_tokenizer_tokens_are_numbers(run: Recorded) -> None:
    run.journal([run.trajectory("g0-0", tokenizer_hash="of another policy")])
    record = told(run, "g0-0")["record"]
    assert record["decoded"] is False
    assert record["sequences"][0]["segments"][1]["ids"] == run.ids(CALL.action)


def test_a_forgotten_record_says_what_keeps_it(run: Recorded) -> None:
    run.journal([run.trajectory("g0-0")])
    told(run, "g0-0")
    with sqlite3.connect(run.folder / "journal.sqlite") as db:
        db.execute("DELETE FROM members")
    found = told(run, "g0-0")
    assert 'engine.history = "all"' in found["gone"]
    assert found["reward"] == 1.0


def test_an_evaluated_question_has_its_figures_and_its_sample(run: Recorded) -> None:
    run.rows("held", 0, [{"index": 0, "parts": {"right": 1.0}}, {"index": 1}])
    run.sample("held", 0, 0, ("prompt", "?"), ("model", "a"), ("tool", "b"), ("model", "c"))
    record = told(run, "held@ab.0/0")["record"]
    assert record["parts"] == [{"name": "right", "value": 1.0, "turn": None}]
    assert [(one["turn"], one["text"]) for one in record["sequences"][0]["segments"]] == [
        (0, "?"), (0, "a"), (0, "b"), (1, "c"),
    ]  # fmt: skip
    assert told(run, "held@ab.0/1")["record"]["sequences"] == []


def test_a_file_that_changed_under_the_index_is_said(run: Recorded) -> None:
    file = run.folder / "d.trajectories"
    write_trajectories(file, [run.trajectory("a-0"), run.trajectory("a-1")])
    spellings = Spellings(run.folder)
    index = Index(run.folder, run.folder.parent / "index.sqlite", spellings.decoder)
    while index.refresh():
        pass
    rows = queries.page(index.file, queries.Question(descending=False)).rows
    second = queries.find(index.file, rows[1]["name"])
    assert tell(run.folder, second, spellings, whole=False)["record"]["calls"]
    file.write_bytes(file.read_bytes()[: second["at"] + 9])
    assert "gone" in tell(run.folder, second, spellings, whole=False)
    file.unlink()
    assert "gone" in tell(run.folder, second, spellings, whole=False)


@settings(max_examples=15)
@given(records.trajectories)
def test_every_record_can_be_told(trajectory: t.Trajectory) -> None:
    told_ = of_record(trajectory, Spellings(Path("/nowhere")))
    assert json.loads(as_json(told_))["reward"] in (trajectory.reward, str(trajectory.reward))


@settings(max_examples=15)
@given(st.text(max_size=60))
def test_pieces_are_together_the_text(policy_folder: Path, text: str) -> None:
    tokenizer = Tokenizer.from_file(str(policy_folder / "tokenizer.json"))
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    spelling = Spelling(tokenizer)
    pieces = spelling.pieces(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == spelling.text(ids)


@settings(max_examples=15)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20))
def test_ids_that_no_tokenizer_knows_are_no_fault(policy_folder: Path, ids: list[int]) -> None:
    spelling = Spelling(Tokenizer.from_file(str(policy_folder / "tokenizer.json")))
    assert len(spelling.pieces(ids)) == len(ids)


PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def test_an_image_stands_where_it_was_shown_without_its_placeholders(run: Recorded) -> None:
    before, after = run.ids("see "), run.ids(" there")
    media = t.MediaRef(
        blob=t.BlobRef(sha256="ab" * 32, media_type="image/png", size=len(PNG)),
        token_offset=len(before),
        placeholder_tokens=3,
    )
    prompt = t.Segment(
        author=t.Author.PROMPT, token_ids=t.ids([*before, 0, 0, 0, *after]), media=(media,)
    )
    sequence = t.Sequence(id="g0-0.0", segments=(prompt,))
    run.journal([run.trajectory("g0-0", sequences=(sequence,))])
    (segment,) = told(run, "g0-0")["record"]["sequences"][0]["segments"]
    assert segment["runs"] == [{"text": "see "}, {"text": " there"}]
    assert segment["media"] == [{"sha256": "ab" * 32, "kind": "image/png", "size": len(PNG)}]


def test_a_journaled_trajectory_names_its_trace(run: Recorded) -> None:
    run.journal([run.trajectory("g0-0")], owner="this run")
    assert told(run, "g0-0")["trace"] == trace_id("this run", "g0-0")


RASTER = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\n\0\0\0WEBPVP8 ",
}


def test_a_blob_is_the_raster_image_that_its_bytes_are_or_is_not_given(
    run: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, data in RASTER.items():
        assert image_of(run.folder, stored(run, data)) == Image(kind=kind, data=data)
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>"
    for data in (b"", svg, b"<html>", b"%PDF-1.7"):
        with pytest.raises(NoImage, match="no PNG"):
            image_of(run.folder, stored(run, data))
    with pytest.raises(NoImage, match="forgotten"):
        image_of(run.folder, "ab" * 32)
    monkeypatch.setattr(images, "MOST_BYTES", len(PNG) - 1)
    with pytest.raises(NoImage, match="the most that is shown"):
        image_of(run.folder, stored(run, PNG))


@pytest.mark.parametrize("name", ["", "../journal.sqlite", "AB" * 32, "ab" * 31])
def test_only_a_hash_names_an_image(run: Recorded, name: str) -> None:
    with pytest.raises(NoImage, match="hexadecimal"):
        image_of(run.folder, name)


def stored(run: Recorded, data: bytes) -> str:
    """The name under which the run's journal keeps the bytes."""
    run.journal([run.trajectory()])
    blob = media_of(data, "image/png")
    with closing(open_database(run.folder / "journal.sqlite")) as db:
        blobs.add(db, 1, [blob])
    return blob.blob.sha256


def test_a_tokenizer_that_comes_later_is_found(run: Recorded) -> None:
    file = run.folder / "final" / "tokenizer.json"
    away = file.rename(run.folder / "away")
    spellings = Spellings(run.folder)
    assert spellings.of(run.hash) is None
    file.parent.joinpath("tokenizer.json").write_text("{", encoding="utf-8")
    assert spellings.of(run.hash) is None
    away.rename(file)
    spelling = spellings.of(run.hash)
    assert spelling.text(run.ids("so")) == "so"
