"""The corpus is read where it lies; files are whole or not there."""

import json
from pathlib import Path

import pytest

from toolsvc.backends.search import files
from toolsvc.backends.search.corpus import Corpus, find_offsets
from toolsvc.backends.search.errors import IndexFault


def line(number: int, contents: str) -> str:
    return json.dumps({"id": number, "contents": contents}, ensure_ascii=False)


def corpus_of(path: Path, text: str) -> Corpus:
    path.write_bytes(text.encode())
    return Corpus(path, find_offsets(path))


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n  \n"])
def test_passages_are_found_by_number_whatever_lies_between_them(tmp_path: Path, end: str) -> None:
    texts = ['"Zürich"\nA town.', '"B"\ntwo\nlines', '"C"']
    lines = [line(number, text) for number, text in enumerate(texts)]
    corpus = corpus_of(tmp_path / "c.jsonl", f"\n{lines[0]}\r\n\n{lines[1]}\n{lines[2]}{end}")
    assert len(corpus) == 3
    assert [passage.contents for passage in corpus.passages()] == texts
    assert corpus[2].id == "2"
    assert [passage.title for passage in corpus.passages(1)] == ["B", "C"]
    assert corpus[1].text == "two\nlines"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{broken", "Expecting property name"),
        ('["list"]', "it has no id"),
        ('{"contents": "x"}', "it has no id"),
        ('{"id": 1, "contents": 5}', "its contents are not text"),
    ],
)
def test_a_line_that_is_no_passage_is_named(tmp_path: Path, text: str, why: str) -> None:
    corpus = corpus_of(tmp_path / "c.jsonl", f"{line(0, 'fine')}\n{text}\n")
    with pytest.raises(IndexFault, match=f"passage 1: {why}"):
        corpus[1]


def test_no_corpus_and_an_empty_one_are_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(IndexFault, match="No such file"):
        find_offsets(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n \n", encoding="utf-8")
    with pytest.raises(IndexFault, match="is empty"):
        find_offsets(tmp_path / "empty.jsonl")


def test_a_file_that_could_not_be_written_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before", encoding="utf-8")

    def fail(file: object) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write_whole(path, fail)
    assert path.read_text(encoding="utf-8") == "before"
    files.write_whole(path, lambda file: file.write(b"after"))
    assert path.read_text(encoding="utf-8") == "after"
