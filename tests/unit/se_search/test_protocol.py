"""How a search agent is understood: its first action, what is corrected, when it must answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.types import Answer, Calls, End, Say, View
from tests.support.codecs import END, ToyCodec
from tests.support.linear import assert_linear
from tests.support.recipes import Part
from toolwright.types import Author, StopReason, Task

CODEC = ToyCodec()


def view(turn: int = 0) -> View:
    return View(task=Task(id="t"), turn=turn, actions=("x",) * turn, calls=(), events=(), tools=())


def task(question: str) -> Task:
    return Task(id="t", messages=({"role": "user", "content": question},))


@pytest.mark.parametrize(
    ("text", "stop", "query"),
    [
        ("<think>a</think><search> who? </search>", "</search>", "who?"),
        ("words before <memory>m</memory><search>q</search>", "</search>", "q"),
        ("<think><search>q</search>", "</search>", "q"),
        ("<answer>no <search>q</search>", "</search>", "q"),
        ("<search><search>q</search>", "</search>", "<search>q"),
        ("<search>\r\nwho\r\n</search>", "</search>", "who"),
        ("<search>日本 \U0001f600 e\u0301</search>", "</search>", "日本 \U0001f600 e\u0301"),
    ],
)
def test_the_first_search_is_made(part: Part, text: str, stop: str, query: str) -> None:
    decided = part("protocol.SeSearch")().decide(text, stop, view(), CODEC)
    assert isinstance(decided, Calls)
    (call,) = decided.calls
    assert (call.tool, call.arguments, call.action) == ("search", {"query": query}, text)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer> Lake Geneva </answer>", "Lake Geneva"),
        ("<think>so <answer>4</answer>", "4"),
        ("<search>never closed <answer>4</answer>", "4"),
        ("<answer></answer>", ""),
        (f"<answer>4</answer>{END}", "4"),
    ],
)
def test_the_first_answer_ends_it(part: Part, text: str, answer: str) -> None:
    for turn in (0, 5, 9):
        decided = part("protocol.SeSearch")().decide(text, "</answer>", view(turn), CODEC)
        assert decided == Answer(text=answer)


@pytest.mark.parametrize(
    "text",
    ["", "I give up", "</search>", "<search>  </search>", "<search>q", "< search>q</search >",
     "<Search>q</Search>", "<documents>q</documents>", "<answer>4", "<answer>4</search>"],
)  # fmt: skip
def test_what_is_no_action_is_corrected_until_the_turns_are_over(part: Part, text: str) -> None:
    protocol = part("protocol.SeSearch")(t_max=2)
    for turn in (0, 1):
        decided = protocol.decide(text + END, END, view(turn), CODEC)
        assert isinstance(decided, Say)
        assert decided.author is Author.SYSTEM
        assert "between <search> and </search>" in decided.text
    assert isinstance(protocol.decide(text + END, END, view(2), CODEC), End)
    silent = part("protocol.SeSearch")(correction="")
    assert isinstance(silent.decide(text + END, END, view(0), CODEC), End)


def test_after_the_last_turn_of_search_only_an_answer_is_carried_out(part: Part) -> None:
    protocol = part("protocol.SeSearch")(t_max=1)
    search = "<search>q</search>"
    assert isinstance(protocol.decide(search, "</search>", view(0), CODEC), Calls)
    late = protocol.decide(search, "</search>", view(1), CODEC)
    assert late == End(reason=StopReason.MAX_TURNS)
    none = part("protocol.SeSearch")(t_max=0)
    assert isinstance(none.decide(search, "</search>", view(0), CODEC), End)


def test_tags_stand_in_one_place(part: Part) -> None:
    """VerlTool's published data speak of calls and responses, its scripts of information."""
    protocol = part("protocol.SeSearch")(
        style="verltool", tags={"search": "tool_call", "documents": "tool_response"}
    )
    assert protocol.stops((), CODEC) == ("</tool_call>", "</answer>", END)
    decided = protocol.decide("<tool_call>q</tool_call>", "</tool_call>", view(), CODEC)
    assert decided.calls[0].arguments == {"query": "q"}
    head, tail = protocol.frame("</tool_call>", CODEC)
    assert CODEC.decode(head) == "\n<tool_response>"
    assert CODEC.decode(tail) == "</tool_response>\n"
    prompt = CODEC.decode(protocol.prompt(task("Who?"), (), CODEC))
    assert "between <tool_call> and </tool_call>" in prompt
    assert "memory" not in prompt


def test_the_question_stays_what_it_is(part: Part) -> None:
    protocol = part("protocol.SeSearch")()
    asked = "What is {search} in <answer>? {question}"
    (message,) = protocol.opening(task(asked), ())
    assert message["content"].endswith(f"Question: {asked}\n")
    bare = part("protocol.SeSearch")(prompt="")
    assert bare.opening(task(asked), ()) == [{"role": "user", "content": asked}]


def test_a_correction_after_a_turn_that_ended_opens_a_new_one(part: Part) -> None:
    protocol = part("protocol.SeSearch")()
    head, tail = protocol.frame(END, CODEC, Author.SYSTEM)
    assert CODEC.decode(head) == "\n<|im_start|>user\n"
    assert CODEC.decode(tail) == f"{END}\n<|im_start|>assistant\n"
    head, tail = protocol.frame("</search>", CODEC, Author.SYSTEM)
    assert (CODEC.decode(head), tail) == ("\n", [])


def test_a_demonstration_is_cut_as_a_rollout_is(part: Part) -> None:
    protocol = part("protocol.SeSearch")(prompt="")
    call = {"function": {"name": "search", "arguments": {"query": "q"}}}
    runs = protocol.demonstration(
        [
            {"role": "user", "content": "Who?"},
            {"role": "assistant", "content": "hm"},
            {"role": "system", "content": "No."},
            {"role": "assistant", "content": "<think>a</think>", "tool_calls": [call]},
            {"role": "tool", "content": "Doc 1"},
            {"role": "assistant", "content": "<memory>m</memory><answer>x</answer>\n"},
        ],
        CODEC,
    )
    assert [(author, CODEC.decode(ids)) for author, ids in runs[1:]] == [
        ("model", f"hm{END}"),
        ("tool", f"\n<|im_start|>user\nNo.{END}\n<|im_start|>assistant\n"),
        ("model", "<think>a</think><search>q</search>"),
        ("tool", "\n<documents>Doc 1</documents>\n"),
        ("model", "<memory>m</memory><answer>x</answer>"),
    ]
    for wrong, words in (
        ({"tool_calls": [{"name": "python", "arguments": {}}]}, "can call 'search' alone"),
        ({"content": "<search>a</search><search>b</search>"}, "goes on after </search>"),
    ):
        with pytest.raises(ValueError, match=words):
            protocol.demonstration(
                [{"role": "user", "content": "x"}, {"role": "assistant", **wrong}], CODEC
            )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"style": "searchr1"}, "style"),
        ({"tags": {"notes": "memory"}}, "notes"),
        ({"tags": {"search": "answer"}}, "a word of its own"),
        ({"tags": {"search": "<search>"}}, "without < and >"),
        ({"tags": {"search": ""}}, "write a word"),
        ({"t_max": -1}, "t_max"),
        ({"prompt": "Answer."}, "needs {question}"),
        ({"observation": "<documents>"}, "needs {text}"),
    ],
)
def test_options_that_make_no_sense_are_refused(part: Part, options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        part("protocol.SeSearch")(**options)


PIECES = st.sampled_from(
    ["<search>", "</search>", "<answer>", "</answer>", "<memory>", "a", "\x00", "é", "\r\n", END]
)


@given(st.lists(PIECES).map("".join), st.sampled_from(["</search>", "</answer>", END]))
def test_whatever_is_written_is_decided(part: Part, text: str, stop: str) -> None:
    decided = part("protocol.SeSearch")().decide(text + stop, stop, view(), CODEC)
    assert isinstance(decided, Answer | Calls | Say | End)


def test_deciding_is_linear(part: Part) -> None:
    protocol = part("protocol.SeSearch")()
    hostile = ("<search>", "<answer>", "</answer", "<search></search>", "<", "<answer><search>")
    assert_linear(lambda text: protocol.decide(text, END, view(), CODEC), texts=hostile)
    assert_linear(
        lambda text: protocol.decide(text, END, view(), CODEC), after="</search>", texts=hostile
    )
