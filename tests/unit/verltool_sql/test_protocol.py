"""How an SQL agent is prompted and understood, and what a demonstration teaches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.types import Answer, Calls, End, ToolSpec, View
from tests.support.codecs import END, ToyCodec
from tests.support.recipes import Part
from tests.unit.verltool_sql.conftest import query, solution
from toolwright.types import StopReason, Task

CODEC = ToyCodec()
TOOL = ToolSpec(name="sql", stop_strings=("</sql>", "</solution>"), service="sql")
SCHEMA = "CREATE TABLE t (n INTEGER, {question} TEXT);"


def view(turn: int = 0) -> View:
    return View(
        task=Task(id="t"), turn=turn, actions=("x",) * turn, calls=(), events=(), tools=(TOOL,)
    )


def task(**metadata: object) -> Task:
    asked = {"role": "user", "content": "How many {schema} are there?"}
    return Task(id="t", messages=(asked,), metadata=metadata)


def prompt(part: Part, asked: Task, **options: object) -> str:
    (message,) = part("protocol.SqlAgent")(**options).opening(asked, [TOOL])
    return str(message["content"])


def test_the_prompt_describes_the_database(part: Part) -> None:
    text = prompt(part, task(schema=SCHEMA, knowledge="n is a count"), queries=3)
    for needed in ("<think>", "<sql>", "<observation>", "<solution>", "3 such queries", "SQLite"):
        assert needed in text
    assert SCHEMA in text and "n is a count" in text
    assert text.endswith("Question: How many {schema} are there?"), "nothing is put into a question"


def test_a_question_that_brings_its_schema_gets_the_rules_alone(part: Part) -> None:
    text = prompt(part, task())
    assert "Schema:" not in text and "Question:" not in text
    assert text.endswith("\n\nHow many {schema} are there?")
    assert "none" in prompt(part, task(schema=SCHEMA)), "of external knowledge"


def test_a_recipe_may_have_a_prompt_of_its_own_or_none(part: Part) -> None:
    assert prompt(part, task(), prompt="") == "How many {schema} are there?"
    own = prompt(part, task(engine="Own"), prompt="{engine} {turns}: {question}")
    assert own == "Own 5: How many {schema} are there?"
    with pytest.raises(ValueError, match=r"needs \{question\}"):
        part("protocol.SqlAgent")(prompt="{schema}")
    with pytest.raises(ValueError, match="queries"):
        part("protocol.SqlAgent")(queries=-1)


def test_the_last_question_of_a_conversation_is_the_one(part: Part) -> None:
    messages = tuple(
        {"role": role, "content": role} for role in ("system", "user", "assistant", "user")
    )
    said = part("protocol.SqlAgent")(prompt="Q: {question}").opening(
        Task(id="t", messages=messages), [TOOL]
    )
    assert [one["content"] for one in said] == ["system", "user", "assistant", "Q: user"]


@pytest.mark.parametrize(
    ("text", "stop"), [(query(), "</sql>"), (solution(), "</solution>"), ("</sql>", "</sql>")]
)
def test_queries_and_solutions_are_calls(part: Part, text: str, stop: str) -> None:
    agent = part("protocol.SqlAgent")()
    for turn in (0, 4):
        decided = agent.decide(text, stop, view(turn), CODEC)
        assert isinstance(decided, Calls)
        (call,) = decided.calls
        assert (call.tool, call.action) == ("sql", text)


def test_after_the_last_query_only_a_solution_is_run(part: Part) -> None:
    agent = part("protocol.SqlAgent")(queries=2)
    assert isinstance(agent.decide(query(), "</sql>", view(1), CODEC), Calls)
    decided = agent.decide(query(), "</sql>", view(2), CODEC)
    assert decided == End(reason=StopReason.MAX_TURNS)
    assert isinstance(agent.decide(solution(), "</solution>", view(2), CODEC), Calls)


@pytest.mark.parametrize("text", [END, f"<think>no</think>{END}", f"SELECT 1{END}"])
def test_a_turn_without_a_block_ends_it(part: Part, text: str) -> None:
    decided = part("protocol.SqlAgent")().decide(text, END, view(), CODEC)
    assert isinstance(decided, End)


@given(st.text(), st.sampled_from(["</sql>", "</solution>", END]), st.integers(0, 9))
def test_it_never_raises(part: Part, text: str, stop: str, turn: int) -> None:
    decided = part("protocol.SqlAgent")().decide(text + stop, stop, view(turn), CODEC)
    assert isinstance(decided, Calls | End | Answer)


def test_a_demonstration_gives_the_ids_that_a_rollout_has(part: Part) -> None:
    agent = part("protocol.SqlAgent")(prompt="", observation="<observation>{text}</observation>")
    shown = "n\n1\n(1 row)\n5 turns left."
    runs = agent.demonstration(
        [
            {"role": "user", "content": "How many?"},
            {"role": "assistant", "content": query()},
            {"role": "tool", "content": shown},
            {"role": "assistant", "content": solution()},
        ],
        CODEC,
    )
    head, tail = agent.frame("</sql>", CODEC)
    asked = Task(id="t", messages=({"role": "user", "content": "How many?"},))
    assert runs == [
        ("prompt", agent.prompt(asked, [TOOL], CODEC)),
        ("model", CODEC.encode(query())),
        ("tool", [*head, *agent.observation([shown], CODEC), *tail]),
        ("model", CODEC.encode(solution())),
    ]


def test_a_demonstration_that_gives_up_ends_its_turn(part: Part) -> None:
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "I do not know"}]
    runs = part("protocol.SqlAgent")().demonstration(said, CODEC)
    assert runs[-1] == ("model", CODEC.encode(f"I do not know{END}"))
