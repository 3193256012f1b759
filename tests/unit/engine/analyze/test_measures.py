"""What is measured of one tool, and of many: the law, complexity, identity, words, tiers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from engine.errors import StartupError
from engine.offline.analyze.findings import findings, tier_of
from engine.offline.analyze.power_law import power_law
from engine.offline.analyze.schema import Size, complexity, identity
from engine.offline.analyze.tally import ToolTally
from engine.offline.analyze.words import Classes, read_vocabulary, words_of

FILM = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
PATTERN = {"properties": {"title": {"pattern": "x"}}}


def test_the_law_of_a_law_and_where_there_is_none() -> None:
    fitted = power_law(round(1e9 * rank**-1.5) for rank in range(1, 200))
    assert fitted is not None and fitted.r2 is not None and fitted.r2 > 0.9999
    assert math.isclose(fitted.exponent, 1.5, rel_tol=1e-4)
    assert math.isclose(fitted.at(1), 1e9, rel_tol=1e-3)
    assert power_law([]) is None and power_law([7]) is None
    flat = power_law([3, 3, 3])
    assert flat is not None and (flat.exponent, flat.r2) == (0, None)


@pytest.mark.parametrize(
    ("schema", "expected", "size"),
    [
        ({}, (0, 0, 0), Size.SIMPLE),
        ({"properties": {"year": {"minimum": 1888, "maximum": 2030}}}, (1, 0, 2), Size.MODERATE),
        ({"properties": {"who": {"properties": {"a": {}, "b": {}}}}}, (3, 1, 0), Size.MODERATE),
        ({"anyOf": [FILM, {"properties": {"id": {"format": "uuid"}}}]}, (2, 0, 1), Size.MODERATE),
        ({"properties": {"a": {"items": {"properties": {"key": {"enum": [1], "pattern": "x"}}},
                               "minItems": 1}}}, (2, 2, 3), Size.COMPLEX),
        ({"properties": {"a": {"$ref": "#/$defs/F"}}, "$defs": {"F": PATTERN}}, (2, 1, 1),
         Size.MODERATE),
    ],
)  # fmt: skip
def test_complexity(schema: Any, expected: tuple[int, int, int], size: Size) -> None:
    found = complexity(schema)
    assert (found.parameters, found.levels, found.validators) == expected
    assert found.size is size


def test_references_in_a_circle_nonsense_and_depth_are_measured_all_the_same() -> None:
    assert complexity({"properties": {"a": {"$ref": "#"}, "b": {"$ref": "http://x"}}}).score == 2
    assert complexity({"$ref": "#/$defs/a~1b", "$defs": {"a/b": PATTERN}}).score == 2
    for place in ({"patternProperties": {"x": PATTERN}}, {"prefixItems": [PATTERN]}):
        assert complexity({"properties": {"a": place}}).parameters >= 2
    odd = {"properties": [1], "items": "x", "anyOf": {"a": 1}, "enum": None, "type": float("nan")}
    assert complexity(odd).score == 1
    assert complexity({"properties": {"a": None, "b": 3, "c": [FILM]}}).parameters == 3
    deep: Any = {}
    for _ in range(50_000):  # deeper than any recursion goes
        deep = {"items": deep}
    assert complexity({"properties": {"a": deep}}).levels == 50_000


def test_a_tool_is_its_name_and_its_schema() -> None:
    other = {"properties": FILM["properties"], "required": ["title"], "type": "object"}
    assert identity("film", FILM) == identity("film", other), "the order of keys is no difference"
    schemas = (FILM, {**FILM, "required": []}, {}, None)
    many = {identity("film", schema) for schema in schemas}
    assert len(many | {identity("films", FILM), identity("\udc80", None)}) == 6


def test_words() -> None:
    assert words_of("filmByTitles_v2 HTTPSearch") == ["film", "by", "title", "v2", "http", "search"]
    assert words_of("été 東京") == ["été", "東京"]
    assert words_of("boxes searches viruses universities movies' news") == [
        "box", "search", "virus", "university", "movie", "news",
    ]  # fmt: skip
    assert max(map(len, words_of("x" * 10_000))) == 40
    for hostile in ("aA" * 10**6, "_" * 10**6, "s" * 10**6):
        assert len(words_of(hostile)) <= 4_000, "a text is cut before it is read"


def test_a_class_is_that_of_the_name_then_of_the_description() -> None:
    classes = Classes({"Film": ["film", "movies"], "Music": ["song", "film"]})

    def of(name: str, description: str = "") -> str:
        return classes.names[classes.of(words_of(name), words_of(description))]

    assert of("get_movie") == "Film"
    assert of("get_song", "of a film") == "Music", "the name says more"
    assert of("get", "song after song of a film") == "Music", "film is a word of both"
    assert of("film") == "Film", "the first of a draw"
    assert of("weather") == "Other"


def test_words_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "words.toml"
    file.write_text('[domains]\nSport = ["goal"]\n', encoding="utf-8")
    read = read_vocabulary(file)
    assert read.domains.names == ("Sport", "Other")
    assert read.functions.names == read_vocabulary().functions.names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("[domains", "is not TOML"),
        ("\udce9", "is not TOML"),
        ("[domain]\na = ['b']", "unknown table 'domain'; known"),
        ("domains = 3", "is not a table of lists"),
        ("[domains]\nOther = ['x']", "leave it out"),
        ("[domains]\nFilm = []", "is not a list of words"),
        ("[domains]\nFilm = ['box office']", "not a single word"),
        ("[functions]\n" + "\n".join(f"c{n} = ['w']" for n in range(51)), "51 classes: at most 50"),
        (None, "--domains: no file"),
    ],
)
def test_words_that_cannot_be_used(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "words.toml"
    if text is not None:
        file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(StartupError, match=words) as caught:
        read_vocabulary(file)
    assert str(file) in str(caught.value)


def counted(counts: dict[str, int], **bounds: int) -> ToolTally:
    tally = ToolTally(read_vocabulary(), **bounds)
    for name, count in counts.items():
        for _ in range(count):
            tally.add(name, "", None)
    return tally


def test_tiers_are_thirds_of_the_invocations() -> None:
    assert [tier_of(before, 9) for before in (0, 2, 3, 5, 6, 8)] == [
        "high", "high", "medium", "medium", "low", "low",
    ]  # fmt: skip
    tiers = findings(counted({"film": 6, "song": 2, "paper": 1, "b": 1, "c": 1, "d": 1}))["tiers"]
    assert [(one["tools"], one["invocations"]) for one in tiers] == [(1, 6), (1, 2), (4, 4)]
    tiers = findings(counted({"film": 90, "song": 5, "paper": 5}))["tiers"]
    assert [one["invocations"] for one in tiers] == [90, 0, 10], "more than a third"


def test_findings() -> None:
    tally = ToolTally(read_vocabulary())
    for _ in range(3):
        tally.add("film", "Looks a movie up.", FILM)
    tally.add("film", "Looks a movie up.", {**FILM, "required": []})
    tally.add("solve", "", None)
    tally.add("", "", None)
    found = findings(tally, ["a note"])
    assert (found["invocations"], found["unique_tools"], found["nameless_calls"]) == (5, 3, 1)
    assert found["without_schema"] == {"tools": 1, "invocations": 1}
    assert {"name": "Film", "tools": 2, "invocations": 4} in found["domains"]
    assert found["functions"][0] == {"name": "Search and lookup", "tools": 2, "invocations": 4}
    sizes = {one["domain"]: one for one in found["complexity"]}
    assert (sizes["Film"]["simple"], sizes["Other"]["unknown"]) == (2, 1)
    assert found["words"][:2] == [{"word": "film", "tools": 2}, {"word": "look", "tools": 2}]
    assert [one["invocations"] for one in found["ranks"]] == [3, 1, 1]
    assert found["power_law"]["tools"] == 3


def test_bounds() -> None:
    found = findings(counted({f"tool_{n}": 2 for n in range(30)}, most_tools=10))
    assert (found["unique_tools"], found["invocations"]) == (10, 60)
    assert found["invocations_beyond_the_bound"] == 40
    few = counted({f"common_word{n}": 1 for n in range(500)}, most_words=50)
    assert len(few.words) <= 100 and few.words["common"] == 500
    assert "rare ones are missing" in findings(few)["notes"][0]
    assert not counted({"film_1895": 1}).words.keys() & {"1895"}, "a number is no word"
    many = findings(counted({f"t{n}": 1 + 5_000 // (n + 1) for n in range(3_000)}))["ranks"]
    assert (many[0]["rank"], many[-1]["rank"]) == (1, 3_000) and len(many) <= 200
