"""Each method with a scripted policy: what it reads, what is searched for, how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from engine.types import Answer, Call, Calls, End, Say, ToolSpec
from tests.support.recipes import Part
from tests.unit.prompting.conftest import CODEC, QUESTION, SEARCH, Talk, view
from toolwright.types import Author, StopReason, Task

METHODS = ["Direct", "ChainOfThought", "NaiveRag", "Ircot", "SearchO1", "ReAct"]
SEARCHING = METHODS[2:]


@pytest.mark.parametrize("name", METHODS)
def test_the_question_stands_in_the_prompt_once_as_a_users_message(part: Part, name: str) -> None:
    prompt = Talk(part(f"methods.{name}")(), []).prompt
    user, _, assistant = prompt.partition("<|im_start|>assistant\n")
    assert user.startswith("<|im_start|>user\n")
    assert user.count(QUESTION) == 1
    first = f"<search> {QUESTION}" if name in ("NaiveRag", "Ircot") else ""
    assert assistant == ("Thought:" if name == "ReAct" else first)


@pytest.mark.parametrize("name", ["Direct", "ChainOfThought"])
def test_an_answer_without_a_tool(part: Part, name: str) -> None:
    talk = Talk(part(f"methods.{name}")(), ["I think. <answer> Sille </answer> and more"])
    assert talk.ended == Answer(text="Sille")
    assert talk.text.endswith("</answer>")
    assert Talk(part(f"methods.{name}")(), ["no answer"]).ended == End()
    assert Talk(part(f"methods.{name}")(), [""]).ended == End(reason=StopReason.EMPTY_OUTPUT)


def test_naive_rag_retrieves_once_with_the_question(part: Part) -> None:
    talk = Talk(part("methods.NaiveRag")(), [" </search>", "<answer> Sille </answer>"])
    assert talk.queries == [QUESTION]
    assert talk.ended == Answer(text="Sille")
    said = f"<search> {QUESTION} </search>\n<information>\nDoc 1\n</information>\n<answer> Sille"
    assert said in talk.text
    again = Talk(part("methods.NaiveRag")(), [" </search>", "<search> more </search>"])
    assert again.queries == [QUESTION]
    assert again.ended == End()


@pytest.mark.parametrize(
    "first", ["", "of the engineer </search>", "<answer> Orvel </answer>", "I know it."]
)
def test_whatever_naive_rag_writes_first_the_question_is_the_query(part: Part, first: str) -> None:
    talk = Talk(part("methods.NaiveRag")(), [first, "<answer> Sille </answer>"])
    assert talk.queries == [QUESTION]
    assert talk.ended == Answer(text="Sille")


def test_where_a_policy_ends_its_turn_the_answer_is_a_users_message(part: Part) -> None:
    talk = Talk(part("methods.NaiveRag")(), ["", "<answer> Sille </answer>"])
    assert (
        "<|im_end|>\n<|im_start|>user\n\n<information>\nDoc 1\n</information>\n<|im_end|>\n"
        "<|im_start|>assistant\n<answer> Sille </answer>"
    ) in talk.text
    assert talk.text.count("<|im_end|>") == 3


def test_ircot_retrieves_with_each_sentence(part: Part) -> None:
    replies = [
        " </search>",
        "Maret Holm was an engineer.\nignored",
        "She was born in Sille.\n",
        "<answer> Sille </answer>",
    ]
    talk = Talk(part("methods.Ircot")(), replies)
    assert talk.queries == [QUESTION, "Maret Holm was an engineer.", "She was born in Sille."]
    assert talk.ended == Answer(text="Sille")
    assert "ignored" not in talk.text


def test_ircot_asks_to_read_when_its_steps_are_used_up(part: Part) -> None:
    sentences = [f"Sentence {number}.\n" for number in range(9)]
    talk = Talk(part("methods.Ircot")(steps=2), [" </search>", *sentences], turns=5)
    assert talk.queries == [QUESTION, "Sentence 0.", "Sentence 1."]
    assert talk.text.count(part("methods.PROMPTS")["ircot_read"]) == 2
    assert talk.ended == End(reason=StopReason.MAX_TURNS)
    none = Talk(part("methods.Ircot")(steps=0), [" </search>", "A.\n", "<answer> B\n"])
    assert none.queries == [QUESTION]
    assert none.ended == Answer(text="B")


@pytest.mark.parametrize("line", ["\n", " \t\n", "...\n", "<answer>\n", "<search></search>"])
def test_a_line_without_words_is_no_query(part: Part, line: str) -> None:
    talk = Talk(part("methods.Ircot")(), [" </search>", line, "A fact.\n"])
    assert talk.queries == [QUESTION, "A fact."]
    assert part("methods.PROMPTS")["ircot_empty"] in talk.text


def test_ircot_of_a_policy_that_ends_its_turn_after_a_sentence(part: Part) -> None:
    talk = Talk(part("methods.Ircot")(), ["", "She was an engineer.", "<answer>Sille</answer>"])
    assert talk.queries == [QUESTION, "She was an engineer."]
    assert talk.ended == Answer(text="Sille")


def test_search_o1_condenses_what_it_finds(part: Part) -> None:
    replies = [
        "Who is she? <search> Maret Holm </search>",
        " She was born in Sille. </notes>",
        "So it is Sille. <answer> Sille </answer>",
    ]
    talk = Talk(part("methods.SearchO1")(), replies)
    assert talk.queries == ["Maret Holm"]
    assert "</search>\n<information>\nDoc 1\n</information>\n<notes> She was born" in talk.text
    assert f"</notes>\n{part('methods.PROMPTS')['search_o1_go_on']}\nSo it is" in talk.text
    assert talk.ended == Answer(text="Sille")


def test_search_o1_says_when_no_search_is_left(part: Part) -> None:
    replies = ["<search> a </search>", "x</notes>", "<search> b </search>", "<answer>c</answer>"]
    talk = Talk(part("methods.SearchO1")(searches=1), replies)
    assert talk.queries == ["a"]
    assert talk.text.count(part("methods.PROMPTS")["search_o1_enough"]) == 2
    assert talk.ended == Answer(text="c")
    assert "up to 1 times" in talk.prompt


@pytest.mark.parametrize("text", ["</search>", "<search></search>", "<search> \n </search>"])
def test_a_search_for_nothing_is_none(part: Part, text: str) -> None:
    talk = Talk(part("methods.SearchO1")(), [text, "<search> x </search>"])
    assert talk.queries == ["x"]
    assert part("methods.PROMPTS")["search_o1_go_on"] in talk.text


def test_a_query_may_hold_its_own_opening_tag(part: Part) -> None:
    talk = Talk(part("methods.SearchO1")(), ["<search> what is <search> in HTML </search>"])
    assert talk.queries == ["what is <search> in HTML"]


def test_react_goes_by_lines(part: Part) -> None:
    replies = [
        " I look her up.\nAction: Search[Maret Holm]\nObservation: made up",
        " She was born in Sille.\nAction 2: finish[Sille]\n",
    ]
    talk = Talk(part("methods.ReAct")(), replies)
    assert talk.queries == ["Maret Holm"]
    assert talk.ended == Answer(text="Sille")
    assert "Action: Search[Maret Holm]\nObservation: Doc 1\nThought: She was" in talk.text
    assert "made up" not in talk.text


def test_react_stops_at_its_own_word_or_at_the_turns_end(part: Part) -> None:
    cut = Talk(part("methods.ReAct")(), ["Action: Search[a] Observation:", "Action: Finish[b]"])
    assert "Observation: Doc 1\nThought:Action: Finish[b]" in cut.text
    ended = Talk(part("methods.ReAct")(), ["Action: Search[a]", "Action: Finish[b]"])
    assert "<|im_start|>user\nObservation: Doc 1\n<|im_end|>" in ended.text
    assert cut.queries == ended.queries == ["a"]
    assert cut.ended == ended.ended == Answer(text="b")


@pytest.mark.parametrize(
    "text",
    [
        "I do not know.",
        "Action: Lookup[x]",
        "Action: Search x",
        "Action: Search[]",
        "Action: Search[x",
        "The Action: Search[x]",
        "Action",
        ":[]",
    ],
)
def test_what_is_no_action_is_answered_with_the_form(part: Part, text: str) -> None:
    talk = Talk(part("methods.ReAct")(), [text, "Action: Finish[x]"])
    assert talk.queries == []
    assert talk.refused == [part("methods.PROMPTS")["react_form"]]
    assert talk.ended == Answer(text="x")


def test_react_without_a_word_is_over(part: Part) -> None:
    assert Talk(part("methods.ReAct")(), [""]).ended == End(reason=StopReason.EMPTY_OUTPUT)
    assert Talk(part("methods.ReAct")(), [" Observation:"]).ended == End(
        reason=StopReason.EMPTY_OUTPUT
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("**Action 1:** Search[x]", ("search", "x")),
        ("**Action**: Search[x]", ("search", "x")),
        ("### Action: Search[x [1] y] z", ("search", "x [1] y")),
        ("Action: Finish[]", ("finish", "")),
        ("Action: Finish[a]\nAction: Finish[b]", ("finish", "a")),
        ("Action: Lookup[a]\r\nAction: Search[b]", ("search", "b")),
        ("action:SEARCH[b]", ("search", "b")),
    ],
)
def test_an_action_is_a_line(part: Part, text: str, found: Any) -> None:
    assert part("methods.action_in")(text) == found


@pytest.mark.parametrize("name", SEARCHING)
def test_a_tool_that_is_missing_is_named(part: Part, name: str) -> None:
    protocol, task = part(f"methods.{name}")(), Task(id="t", prompt="x")
    with pytest.raises(ValueError, match="no tool 'search', only python"):
        protocol.prompt(task, (ToolSpec(name="python"),), CODEC)
    assert protocol.prompt(task, (), CODEC)  # `engine check` asks no service
    other = part(f"methods.{name}")(tool="web_search")
    assert other.prompt(task, (ToolSpec(name="web_search"),), CODEC)


@pytest.mark.parametrize("name", METHODS)
def test_options_that_do_not_fit_are_refused(part: Part, name: str) -> None:
    make = part(f"methods.{name}")
    with pytest.raises(ValueError, match=r"words needs \{question\}"):
        make(words="Answer.")
    with pytest.raises(ValueError, match=r"observation needs \{text\}"):
        make(observation="<information>")
    with pytest.raises(TypeError):
        make(wrong=1)
    assert "{question}" in make.words
    assert Talk(make(words="Q: {question}"), []).prompt.startswith(
        f"<|im_start|>user\nQ: {QUESTION}<|im_end|>"
    )


@pytest.mark.parametrize(("name", "option"), [("Ircot", "steps"), ("SearchO1", "searches")])
def test_counts_are_not_negative(part: Part, name: str, option: str) -> None:
    with pytest.raises(ValueError, match=option):
        part(f"methods.{name}")(**{option: -1})


def test_the_question_of_messages_is_the_users_last(part: Part) -> None:
    task = Task(
        id="t",
        messages=(
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "first"},
            {"role": "user", "content": [{"type": "text", "text": "{question} last"}]},
        ),
    )
    question = part("protocol.question_of")(task)
    assert question == "{question} last"
    (message,) = part("methods.Direct")(words="Q: {question}").opening(task, ())
    assert message == {"role": "user", "content": "Q: {question} last"}
    assert part("protocol.question_of")(Task(id="t")) == ""


@pytest.mark.parametrize("content", [None, 1, [], ["text"], [{"type": "image"}], [{"text": 1}]])
def test_a_question_that_is_no_text_is_empty(part: Part, content: Any) -> None:
    task = Task(id="t", messages=({"role": "user", "content": content},))
    assert part("protocol.question_of")(task) == ""


def test_a_query_is_one_line_of_bounded_length(part: Part) -> None:
    query_of = part("protocol.query_of")
    assert query_of(" a\r\n b\tc ") == "a b c"
    assert len(query_of("word " * 100_000)) == part("protocol.LONGEST_QUERY")
    assert query_of("\n" * 100_000 + "x") == ""
    decided = part("methods.SearchO1")().decide(
        "<search>" + "y" * 100_000 + "</search>", "</search>", view(), CODEC
    )
    assert len(decided.calls[0].arguments["query"]) == part("protocol.LONGEST_QUERY")


def test_documents_cannot_answer_or_search(part: Part) -> None:
    """Only the text of an action is read, never what tools said before it."""
    decided = part("methods.SearchO1")().decide(
        "I agree.<|im_end|>", "<|im_end|>", view(2, 1), CODEC
    )
    assert decided == End()


@pytest.mark.parametrize("name", METHODS)
def test_what_is_decided_is_a_decision(part: Part, name: str) -> None:
    protocol = part(f"methods.{name}")()
    for stop in protocol.stops((SEARCH,), CODEC):
        for turn in (0, 1, 6):
            decided = protocol.decide(stop, stop, view(turn), CODEC)
            assert isinstance(decided, Answer | Calls | End | Say)
            if isinstance(decided, Calls):
                assert all(isinstance(call, Call) for call in decided.calls)
        for author in (Author.TOOL, Author.SYSTEM):
            head, tail = protocol.frame(stop, CODEC, author)
            assert all(isinstance(one, int) for one in (*head, *tail))


@pytest.mark.parametrize(
    ("text", "form", "answer"),
    [
        ("<answer>5</answer> so </answer>", "tags", "5"),
        ("<answer>5</answer> or <answer>6</answer>", "tags", "6"),
        ("<answer>5</answer> so </answer>", "line", "5"),
        ("<answer> 5\n", "line", "5"),
        ("</answer><answer>", "tags", None),
    ],
)
def test_an_answer_ends_at_the_first_closing_tag(
    part: Part, text: str, form: str, answer: str | None
) -> None:
    assert part("methods.answer_of")(text, form) == answer
