"""The `tasks` command, as somebody types it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from engine.core.tasks.source import TaskSource
from tasks.cli import app
from tasks.commands.writing import write_new
from tasks.errors import NotMade
from tasks.sets import SETS
from tasks.worlds import WORLDS

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def qa(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "test.jsonl"
    path.parent.mkdir()
    rows = [{"question": f"q{n}?", "answer": [f"a{n}"]} for n in range(5)] + [
        {"question": "x", "answer": ""}
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_list_tells_of_every_set_and_world() -> None:
    found = run("list")
    assert found.exit_code == 0
    for name, layout in SETS.items():
        assert f"  {name} (" in found.output
        assert layout.where in found.output
    for name in WORLDS:
        assert f"  {name}\n" in found.output
    some = run("list", "--match", "SQL").output
    assert "spider" in some
    assert "gsm8k" not in some
    none = run("list", "--match", "nonsense")
    assert none.exit_code == 1
    assert none.stderr == "tasks: nothing matches 'nonsense': `tasks list` alone shows all\n"


def test_show_counts_what_is_rejected(qa: Path) -> None:
    found = run("show", "hotpotqa", qa, "--n", 2)
    assert found.exit_code == 0
    assert '"question": "q1?"' in found.output
    assert '"question": "q2?"' not in found.output
    # Said once, and not by a log beside the records.
    assert found.output.endswith(
        "}\n5 records; rejected: 1 with no answer, the first is test.jsonl:6\n"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show", "mmlu", "FILE"), "no set is called 'mmlu'"),
        (("show", "hotpotqa", "gone.jsonl"), "no file gone.jsonl"),
        (("show", "math500", "FILE"), "set math500: test.jsonl:1 has"),
        (("convert", "hotpotqa", "FILE", "out.txt"), "has to end in .jsonl"),
        (("convert", "hotpotqa", "FILE", "FILE"), "is there already"),
        (("convert", "hotpotqa", "FILE", "/proc/no/out.jsonl"), "cannot be written"),
        (("make", "moon", "x"), "no world is called 'moon': there are atlas"),
    ],
)
def test_a_mistake_is_one_sentence(words: tuple[str, ...], says: str, qa: Path) -> None:
    if "math500" in words:
        qa.write_text(
            qa.read_text(encoding="utf-8").replace('"answer"', '"\\u001b[31mx"'), encoding="utf-8"
        )
    found = run(*(qa if word == "FILE" else word for word in words))
    assert found.exit_code == 1
    assert says in found.stderr
    assert found.stderr.startswith("tasks: ")
    assert found.stderr.count("\n") == 1
    assert "\x1b" not in found.output


def test_show_is_safe_for_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(
        json.dumps({"question": "\x1b[2Jq", "answer": "a" * 5000}) + "\n", encoding="utf-8"
    )
    found = run("show", "hotpotqa", path)
    assert "\x1b" not in found.output
    assert "(5000 characters)" in found.output


async def test_a_converted_set_is_a_task_source(qa: Path, tmp_path: Path) -> None:
    out = tmp_path / "made" / "train.jsonl"
    found = run("convert", "hotpotqa", qa, out)
    assert found.exit_code == 0, found.output
    assert "5 questions of hotpotqa" in found.output
    source = await TaskSource.opened("train.jsonl", out.parent, seed=1, shuffle=False)
    try:
        task = (await source.at(2)).task
        assert (task.prompt, task.answers, task.data_source) == ("q2?", ("a2",), "hotpotqa")
        assert task.metadata == {"task": "qa", "split": "test"}
        assert (source.rows, source.bad_rows, source.warnings()) == (5, 0, [])
    finally:
        source.close()


def test_rows_of_a_source_a_sample_and_copied_fields(tmp_path: Path) -> None:
    rows = [
        {
            "id": f"{number}",
            "question": f"q{number}?",
            "golden_answers": ["a"],
            "data_source": "nq" if number % 2 else "hotpotqa",
        }
        for number in range(20)
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def converted(name: str, *options: object) -> list[dict[str, Any]]:
        out = tmp_path / f"{name}.jsonl"
        found = run("convert", "search_r1", path, out, *options)
        assert found.exit_code == 0, found.output
        return lines(out)

    own = converted("nq", "--only-source", "nq", "--metadata", "question")
    assert [row["data_source"] for row in own] == ["nq"] * 10
    assert [row["metadata"]["question"] for row in own] == [row["question"] for row in own]
    drawn = [
        [row["question"] for row in converted(f"{at}", "--sample", 4, "--seed", seed)]
        for at, seed in enumerate((1, 1, 2))
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(len(set(one)) == 4 for one in drawn)
    few = converted("few", "--only-source", "nq", "--sample", 10)
    assert [row["question"] for row in few] == [row["question"] for row in own]
    for options, says in (
        (("--only-source", "nqq"), "the sources are hotpotqa, nq"),
        (("--only-source", "nq", "--sample", 11), "there are 10 rows"),
    ):
        found = run("convert", "search_r1", path, tmp_path / "x.jsonl", *options)
        assert (found.exit_code, says in found.stderr) == (1, True)
    found = run("convert", "search_r1", path, tmp_path / "x.jsonl", "--metadata", "answer")
    assert found.exit_code == 2


async def test_images_are_handed_over(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(PNG)
    row = {"qid": "q", "question": "What?", "answer": ["x"], "is_video": False}
    (tmp_path / "v.jsonl").write_text(
        json.dumps({**row, "image": ["a.png"]}) + "\n", encoding="utf-8"
    )
    inside = {**row, "image": [{"bytes": PNG + b"1", "path": None}]}
    pa.parquet.write_table(pa.Table.from_pylist([inside, inside]), tmp_path / "v.parquet")
    for file, options, name in (
        ("v.jsonl", ("--images", tmp_path / "pictures"), "one.jsonl"),
        ("v.parquet", (), "two.jsonl"),
    ):
        made = run("convert", "v_star", tmp_path / file, tmp_path / "made" / name, *options)
        assert made.exit_code == 0, made.output
        source = await TaskSource.opened(name, tmp_path / "made", seed=1, shuffle=False)
        try:
            (media,) = (await source.at(0)).media
            assert media.data.startswith(PNG)
        finally:
            source.close()
    assert len(list((tmp_path / "made" / "two-images").iterdir())) == 1


def test_images_lie_under_several_folders_and_beside_a_video(tmp_path: Path) -> None:
    """PixelReasoner's rows: images of images.zip, frames of videos.zip, each from its folder."""
    for folder, name in (("images", "a/1.jpg"), ("videos", "v/01.jpg"), ("videos", "v/02.jpg")):
        (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_bytes(PNG)
    asked = {"question": "What?", "answer": ["x"]}
    rows = [
        {"qid": "image", **asked, "image": ["a/1.jpg"], "is_video": False},
        {"qid": "frames", **asked, "image": ["v/01.jpg", "v/02.jpg"], "is_video": True},
        {"qid": "both", **asked, "image": ["a/1.jpg"], "video": [{"video": "w.mp4"}]},
        {"qid": "video", **asked, "image": None, "video": ["w.mp4"], "is_video": True},
        {"qid": "nothing", **asked, "image": []},
    ]
    file = tmp_path / "release.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    roots = ("--images", tmp_path / "images", "--images", tmp_path / "videos")
    made = run("convert", "pixel_reasoner", file, tmp_path / "data" / "train.jsonl", *roots)
    assert made.exit_code == 0, made.output
    assert "4 questions of pixel_reasoner; rejected: 1 with no image" in made.output
    written = (tmp_path / "data" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["images"] for line in written] == [
        ["../images/a/1.jpg"],
        ["../videos/v/01.jpg", "../videos/v/02.jpg"],
        ["../images/a/1.jpg", "../images/w.mp4"],  # in neither: the engine will name it
        ["../images/w.mp4"],
    ]


def test_what_ends_badly_leaves_no_file(qa: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in qa.read_text(encoding="utf-8").splitlines()]
    cut = qa.with_suffix(".json")
    cut.write_text(json.dumps(rows)[:-1], encoding="utf-8")
    found = run("convert", "hotpotqa", cut, tmp_path / "made" / "out.jsonl")
    assert found.exit_code == 1
    assert list((tmp_path / "made").iterdir()) == []


def test_what_is_interrupted_leaves_no_file(tmp_path: Path) -> None:
    def stopped() -> Iterator[str]:
        yield "a\n"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_new(tmp_path / "out.jsonl", stopped())
    assert list(tmp_path.iterdir()) == []


def test_only_its_own_errors_are_those_of_the_file(tmp_path: Path) -> None:
    def failing() -> Iterator[str]:
        yield "a\n"
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        write_new(tmp_path / "out.jsonl", failing())
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full")
    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda path, mode, **more: opened(full, "w", **more))
    with pytest.raises(NotMade, match="No space left"):
        write_new(tmp_path / "out.jsonl", iter(["a\n"] * 3))
    with pytest.raises(NotMade, match="No space left"):
        write_new(tmp_path / "out.jsonl", iter(["a\n" * 100_000]))


def test_half_a_surrogate_pair_is_written_and_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"question": "\\ud800 é?", "answer": "b"}\n', encoding="utf-8")
    assert run("show", "hotpotqa", path).exit_code == 0
    assert run("convert", "hotpotqa", path, tmp_path / "y.jsonl").exit_code == 0
    assert lines(tmp_path / "y.jsonl")[0]["question"] == "\ud800 é?"


async def test_a_world_is_three_files(tmp_path: Path) -> None:
    found = run("make", "atlas", tmp_path / "one", "--seed", 3)
    assert found.exit_code == 0, found.output
    assert run("make", "atlas", tmp_path / "two", "--seed", 3).exit_code == 0
    names = {"corpus.jsonl", "train.jsonl", "heldout.jsonl"}
    assert {path.name for path in (tmp_path / "one").iterdir()} == names
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert set(lines(tmp_path / "one" / "corpus.jsonl")[0]) == {"id", "contents"}
    again = run("make", "atlas", tmp_path / "one")
    assert again.exit_code == 1
    assert "has corpus.jsonl, train.jsonl, heldout.jsonl already" in again.stderr
    source = await TaskSource.opened("train.jsonl", tmp_path / "one", seed=1, shuffle=True)
    try:
        assert (await source.at(0)).task.answers
        assert (source.bad_rows, source.warnings()) == (0, [])
    finally:
        source.close()
