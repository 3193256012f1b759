"""What is measured of one tool, and of many: the law, complexity, identity, words, tiers."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

from engine.errors import StartupError
from engine.offline.analyze.findings import findings, tier_of
from engine.offline.analyze.power_law import power_law
from engine.offline.analyze.schema import Size, complexity, identity
from engine.offline.analyze.table import table
from engine.offline.analyze.tally import ToolTally
from engine.offline.analyze.words import OURS, Classes, Vocabulary, read_vocabulary, words_of

FILM = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


def test_the_law_of_a_law() -> None:
    fitted = power_law(round(1e9 * rank**-1.5) for rank in range(1, 200))
    assert fitted is not None and fitted.r2 is not None
    assert math.isclose(fitted.exponent, 1.5, rel_tol=1e-4)
    assert math.isclose(fitted.at(1), 1e9, rel_tol=1e-3)
    assert fitted.r2 > 0.9999


def test_where_there_is_no_law() -> None:
    assert power_law([]) is None
    assert power_law([7]) is None
    flat = power_law([3, 3, 3])
    assert flat is not None
    assert (flat.exponent, flat.r2) == (0, None)


@pytest.mark.parametrize(
    ("schema", "expected", "size"),
    [
        ({}, (0, 0, 0), Size.SIMPLE),
        (FILM, (1, 0, 0), Size.SIMPLE),
        (
            {"properties": {"year": {"minimum": 1888, "maximum": 2030}}},
            (1, 0, 2),
            Size.MODERATE,
        ),
        (
            {"properties": {"who": {"type": "object", "properties": {"a": {}, "b": {}}}}},
            (3, 1, 0),
            Size.MODERATE,
        ),
        (
            {
                "properties": {
                    "rows": {
                        "items": {"properties": {"key": {"enum": [1], "pattern": "x"}}},
                        "minItems": 1,
                    }
                }
            },
            (2, 2, 3),
            Size.COMPLEX,
        ),
        ({"anyOf": [FILM, {"properties": {"id": {"format": "uuid"}}}]}, (2, 0, 1), Size.MODERATE),
    ],
)
def test_complexity(schema: Any, expected: tuple[int, int, int], size: Size) -> None:
    found = complexity(schema)
    assert (found.parameters, found.levels, found.validators) == expected
    assert found.size is size


def test_complexity_behind_references_and_in_every_place_of_a_schema() -> None:
    film = {"properties": {"title": {"pattern": "x"}}}
    found = complexity({"properties": {"a": {"$ref": "#/$defs/F"}}, "$defs": {"F": film}})
    assert (found.parameters, found.levels, found.validators) == (2, 1, 1)
    assert complexity({"properties": {"a": {"$ref": "#"}, "b": {"$ref": "http://x"}}}).score == 2
    assert complexity({"$ref": "#/$defs/a~1b", "$defs": {"a/b": film}}).score == 2
    for key in ("patternProperties", "prefixItems", "additionalProperties"):
        held = {"x": film} if key == "patternProperties" else film
        inside = [held] if key == "prefixItems" else held
        assert complexity({"properties": {"a": {key: inside}}}).parameters >= 2, key


def test_a_schema_of_nonsense_is_measured_all_the_same() -> None:
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
    many = {
        identity("film", FILM),
        identity("films", FILM),
        identity("film", {**FILM, "required": []}),
        identity("film", {}),
        identity("film", None),
        identity("\udc80", None),
    }
    assert len(many) == 6


def test_words() -> None:
    assert words_of("filmByTitles_v2") == ["film", "by", "title", "v2"]
    assert words_of("Looks up the movies' news.") == ["look", "up", "the", "movie", "news"]
    assert words_of("été 東京") == ["été", "東京"]
    assert words_of("") == []
    assert max(map(len, words_of("x" * 10_000))) == 40
    for hostile in ("aA" * 10**6, "_" * 10**6, "s" * 10**6):
        assert len(words_of(hostile)) <= 4_000, "a text is cut before it is read"


def test_words_in_capitals_and_plurals() -> None:
    assert words_of("HTTPSearch") == ["http", "search"]
    assert words_of("parseJSONFiles DBs") == ["parse", "json", "file", "dbs"]
    assert words_of("list_universities, run_queries") == ["list", "university", "run", "query"]
    assert words_of("boxes searches classes viruses caches ties uses analyzes") == [
        "box", "search", "class", "virus", "cache", "tie", "use", "analyze",
    ]  # fmt: skip


def test_each_of_our_words_is_its_plural() -> None:
    read = tomllib.loads(OURS.read_text(encoding="utf-8"))
    ours = {word for name in ("domains", "functions") for of in read[name].values() for word in of}
    for word in ours - {"news", "series", "thesis"}:
        if word.endswith(("s", "x", "ch", "sh")):
            plural = word + "es"
        elif word.endswith("y") and word[-2] not in "aeiou":
            plural = word[:-1] + "ies"
        else:
            plural = word + "s"
        if len(word) > 2:  # of three letters, `its` and `was` are more frequent than plurals
            assert words_of(plural) == words_of(word), word


def test_classes() -> None:
    classes = Classes({"Film": ["film", "movies"], "Music": ["song", "film"]})
    assert classes.names == ("Film", "Music", "Other")

    def of(name: str, description: str = "") -> str:
        return classes.names[classes.of(words_of(name), words_of(description))]

    assert of("get_movie") == "Film"
    assert of("get_song", "of a film") == "Music", "the name says more"
    assert of("get", "song after song of a film") == "Music", "film is a word of both"
    assert of("film") == "Film", "the first of a draw"
    assert of("weather") == "Other"


def test_our_words_sort_plain_names() -> None:
    ours = read_vocabulary()
    for name, domain, function in (
        ("search_film_by_director", "Film", "Search and lookup"),
        ("university_lookup", "Academic", "Search and lookup"),
        ("query_sql", "Database", "Database access"),
        ("get_album_tracks", "Media", "Retrieval"),
        ("spouse_of_person", "Biographical", "Other"),
        ("battle_timeline", "Historical", "Other"),
        ("python", "Other", "Calculation"),
    ):
        words = words_of(name)
        assert ours.domains.names[ours.domains.of(words, ())] == domain, name
        assert ours.functions.names[ours.functions.of(words, ())] == function, name


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
        ("[domain]\na = ['b']", "unknown table 'domain'; known"),
        ("[domains]", "is not a table of lists"),
        ("domains = 3", "is not a table of lists"),
        ("[domains]\nOther = ['x']", "leave it out"),
        ("[domains]\nFilm = 'film'", "is not a list of words"),
        ("[domains]\nFilm = []", "is not a list of words"),
        ("[domains]\nFilm = ['box office']", "not a single word"),
        ("[domains]\nFilm = ['Film']", "not a single word"),
        ("left_out = [3]", "not a single word"),
        ("[functions]\n" + "\n".join(f"c{n} = ['w']" for n in range(51)), "51 classes: at most 50"),
    ],
)
def test_words_that_cannot_be_used(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "words.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(StartupError, match=words) as caught:
        read_vocabulary(file)
    assert str(file) in str(caught.value)


def test_no_file_of_words(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="--domains: no file"):
        read_vocabulary(tmp_path / "absent.toml")
    (tmp_path / "latin").write_bytes(b"[domains]\nFilm = ['\xe9']\n")
    with pytest.raises(StartupError, match="not TOML"):
        read_vocabulary(tmp_path / "latin")


def test_tiers_are_thirds_of_the_invocations() -> None:
    assert [tier_of(before, 9) for before in (0, 2, 3, 5, 6, 8)] == [
        "high", "high", "medium", "medium", "low", "low",
    ]  # fmt: skip
    tally = counted({"film": 6, "song": 2, "paper": 1, "b": 1, "c": 1, "d": 1})
    tiers = {one["tier"]: one for one in findings(tally)["tiers"]}
    assert [tiers[name]["tools"] for name in ("high", "medium", "low")] == [1, 1, 4]
    assert [tiers[name]["invocations"] for name in ("high", "medium", "low")] == [6, 2, 4]


def test_a_tool_that_takes_more_than_a_third_leaves_a_tier_empty() -> None:
    found = findings(counted({"film": 90, "song": 5, "paper": 5}))
    assert [one["invocations"] for one in found["tiers"]] == [90, 0, 10]
    (row,) = [line for line in table(found) if line.startswith("their invocations")]
    assert row.split()[2:] == ["90", "0", "10"]


def counted(
    counts: dict[str, int], vocabulary: Vocabulary | None = None, **bounds: int
) -> ToolTally:
    tally = ToolTally(vocabulary or read_vocabulary(), **bounds)
    for name, count in counts.items():
        for _ in range(count):
            tally.add(name, "", None)
    return tally


def test_findings() -> None:
    tally = ToolTally(read_vocabulary())
    tally.trajectories = 2
    for _ in range(3):
        tally.add("film", "Looks a movie up.", FILM)
    tally.add("film", "Looks a movie up.", {**FILM, "required": []})
    tally.add("solve", "", None)
    tally.add("", "", None)
    found = findings(tally, ["a note"])
    assert (found["invocations"], found["unique_tools"], found["nameless_calls"]) == (5, 3, 1)
    assert found["without_schema"] == {"tools": 1, "invocations": 1}
    film = next(one for one in found["domains"] if one["name"] == "Film")
    assert film == {"name": "Film", "tools": 2, "invocations": 4}
    assert sum(one["invocations"] for one in found["domains"]) == 5
    assert found["functions"][0] == {"name": "Search and lookup", "tools": 2, "invocations": 4}
    sizes = {one["domain"]: one for one in found["complexity"]}
    assert sizes["Film"]["simple"] == 2
    assert sizes["Other"]["unknown"] == 1
    assert found["words"][:2] == [{"word": "film", "tools": 2}, {"word": "look", "tools": 2}]
    assert [one["invocations"] for one in found["ranks"]] == [3, 1, 1]
    assert found["power_law"]["tools"] == 3
    assert found["tools"][0]["name"] == "film"


def test_the_order_of_invocations_is_no_matter() -> None:
    counts = {f"tool_{n}": n % 7 + 1 for n in range(100)}
    there, back = counted(counts), counted(dict(reversed(counts.items())))
    assert findings(there) == findings(back)


def test_bounds() -> None:
    tally = counted({f"tool_{n}": 2 for n in range(30)}, most_tools=10)
    found = findings(tally)
    assert (found["unique_tools"], found["invocations"]) == (10, 60)
    assert found["invocations_beyond_the_bound"] == 40
    words = counted({f"common_word{n}": 1 for n in range(500)}, most_words=50).words
    assert len(words) <= 100
    assert words["common"] == 500
    few = counted({f"common_word{n}": 1 for n in range(500)}, most_words=50)
    assert "rare ones are missing" in findings(few)["notes"][0]
    assert not counted({"film_1895": 1}).words.keys() & {"1895"}, "a number is no word"


def test_ranks_of_many_tools_are_few() -> None:
    found = findings(counted({f"t{n}": 1 + 5_000 // (n + 1) for n in range(3_000)}))
    ranks = [one["rank"] for one in found["ranks"]]
    assert ranks == sorted(set(ranks))
    assert (ranks[0], ranks[-1]) == (1, 3_000)
    assert len(ranks) <= 200


def test_nothing_was_called() -> None:
    found = findings(ToolTally(read_vocabulary()))
    assert found["power_law"] is None
    assert found["tools"] == found["ranks"] == found["words"] == []
    assert [one["tools"] for one in found["tiers"]] == [0, 0, 0]
