"""Scripts are pure, lazy and strict about what they yield."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path

import pytest

from bench.scripted import Script, ScriptError, ScriptRequest, Token, cycle, parse_script, replies
from bench.scripted.script import default_logprob, load_replies, tokens


def request(turn: int = 0, conversation: str = "c") -> ScriptRequest:
    return ScriptRequest(
        rid="r", conversation=conversation, turn=turn, input_ids=(1, 2, 3), params={}
    )


def ids(script: Script, turn: int = 0, count: int = 50, conversation: str = "c") -> list[int]:
    return [t.id for t in islice(tokens(script, request(turn, conversation)), count)]


def test_replies_by_turn_and_the_last_one_again() -> None:
    script = replies([[5, 6], [7]])
    assert [ids(script, turn) for turn in range(3)] == [[5, 6], [7], [7]]


def test_cycle_has_the_stop_id_at_every_nth_place_and_nowhere_else() -> None:
    drawn = ids(cycle(stop_id=3, every=5, vocabulary=10), count=100)
    assert [i for i, token_id in enumerate(drawn, 1) if token_id == 3] == list(range(5, 101, 5))
    assert all(0 <= token_id < 10 for token_id in drawn)


def test_cycle_repeats_with_its_seed_and_differs_between_turns() -> None:
    script = cycle(stop_id=3, every=5)
    assert ids(script) == ids(script)
    assert ids(script, turn=1) != ids(script, turn=2)
    assert ids(script, conversation="d") != ids(script)
    assert ids(cycle(stop_id=3, every=5, seed=1)) != ids(script)


def test_bare_ids_get_distinct_logprobs() -> None:
    drawn = list(tokens(replies([[5, 5, (6, -0.5)]]), request()))
    assert drawn == [
        Token(5, default_logprob(5, 0)),
        Token(5, default_logprob(5, 1)),
        Token(6, -0.5),
    ]
    assert drawn[0].logprob != drawn[1].logprob
    assert all(-2 < token.logprob < 0 for token in drawn)


@pytest.mark.parametrize("logprob", [0.0, -1e-9, -0.5, -30.0])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_likeliest_tokens_are_a_distribution_with_the_sampled_one(
    logprob: float, count: int
) -> None:
    found = Token(3, logprob).likeliest(count)
    assert len(found) == len({i for i, _ in found}) == count
    assert (3, logprob) in found
    assert [value for _, value in found] == sorted((v for _, v in found), reverse=True)
    assert sum(math.exp(value) for _, value in found) <= 1 + 1e-5
    told = ((7, -0.5), (8, -1.5), (9, -2.5))
    assert Token(3, logprob, told).likeliest(count) == told[:count]


@pytest.mark.parametrize("bad", ["5", 1.5, True, None, (5,), (5, "x")])
def test_anything_else_is_a_script_error(bad: object) -> None:
    with pytest.raises(ScriptError, match="position 0"):
        list(tokens(lambda _: [bad], request()))  # type: ignore[arg-type]


def test_a_failing_function_is_a_script_error() -> None:
    def script(_: ScriptRequest) -> list[int]:
        raise KeyError("lost")

    with pytest.raises(ScriptError, match="KeyError"):
        list(tokens(script, request()))


def test_a_script_imports_the_files_beside_it(tmp_path: Path) -> None:
    """Another folder's file of the same name is another module."""
    for number, name in enumerate(("one", "two")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "words.py").write_text(f"WORDS = [{number}]", encoding="utf-8")
        text = "from words import WORDS\ndef reply(request): return WORDS"
        (folder / "agent.py").write_text(text, encoding="utf-8")
        assert ids(parse_script(f"{folder / 'agent.py'}:reply")) == [number]


@pytest.mark.parametrize(
    ("source", "spec", "words"),
    [
        ("", "{file}", "FILE.py:function"),
        ("", "{file}:reply", "no function"),
        ("reply = 1", "{file}:reply", "no function"),
        ("import not_there_at_all", "{file}:reply", "does not import"),
        ("def reply(", "{file}:reply", "does not import"),
        ("def reply(): return []", "{file}:reply", "one argument"),
        ("", "/no/such.py:reply", "does not exist"),
        ("", "cycle:1", "cycle:STOP_ID:EVERY"),
        ("", "cycle:1:x", "cycle:STOP_ID:EVERY"),
        ("", "cycle:1:0", "every 1 or more"),
    ],
)
def test_bad_specs_say_what_is_wrong(tmp_path: Path, source: str, spec: str, words: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(source, encoding="utf-8")
    with pytest.raises(ScriptError, match=words):
        parse_script(spec.format(file=file))


def test_replies_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "replies.json"
    file.write_text("[[5, [6, -0.5]], []]", encoding="utf-8")
    assert list(tokens(load_replies(str(file)), request()))[1] == Token(6, -0.5)
    assert ids(load_replies(str(file)), turn=1) == []


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[["a"]]', "[[true]]", "[]"])
def test_bad_replies_files(tmp_path: Path, text: str) -> None:
    file = tmp_path / "replies.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScriptError):
        load_replies(str(file))
