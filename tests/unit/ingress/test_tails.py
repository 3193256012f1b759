"""Tails: the ids of new messages are those that the template writes for the whole conversation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ingress.text.tails import Tails, splittable
from ingress.types import Message, ToolCall
from tests.support.families import FAMILIES, write_family
from tests.support.policy import write_policy
from toolwright.chat.tokenizer import ChatTokenizer
from toolwright.types import Author

pytestmark = pytest.mark.slow

TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "looks", "parameters": {"type": "object"}},
}
OPENING = (Message(role="system", text="Be brief."), Message(role="user", text="Look!"))
CALLED = Message(
    role="assistant", text="", calls=(ToolCall(id="call00000", name="look", arguments="{}"),)
)
SAID = Message(role="assistant", text="Hello.")
NEW = {
    "user": (Message(role="user", text="And <|im_end|> now?"),),
    "tool": (Message(role="tool", text="a cat", call_id="call00000"),),
    "two tools": (
        Message(role="tool", text="a cat", call_id="call00000"),
        Message(role="tool", text="a dog", call_id="call00000"),
    ),
    "tool and user": (
        Message(role="tool", text="a cat", call_id="call00000"),
        Message(role="user", text="Go on."),
    ),
}
SPLIT = ("qwen2_5", "qwen3", "llama_3", "deepseek_v3")
Make = Callable[[str], ChatTokenizer]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    made: dict[str, ChatTokenizer] = {}

    def tokenizer(name: str) -> ChatTokenizer:
        if name not in made:
            made[name] = ChatTokenizer(write_family(tmp_path_factory.mktemp(name) / "p", name))
        return made[name]

    return tokenizer


@pytest.mark.parametrize("family", SPLIT)
@pytest.mark.parametrize("kind", NEW)
def test_a_tail_is_the_end_of_the_whole(make: Make, family: str, kind: str) -> None:
    tokenizer, new = make(family), NEW[kind]
    tails = Tails(tokenizer)
    assert splittable(tokenizer)
    said = CALLED if new[0].role == "tool" else SAID
    whole = tails.fresh([*OPENING, said, *new], (TOOL,)).token_ids
    tail = tails.tail(new, (TOOL,), turn_ended=False)
    assert tail is not None
    assert whole[-len(tail.token_ids) :] == tail.token_ids
    assert tail.token_ids[0] == tokenizer.token_id(tokenizer.end_of_turn)
    assert tail.authors[0] == (Author.TEMPLATE, 1)
    assert sum(count for _, count in tail.authors) == len(tail.token_ids)
    after = tails.tail(new, (TOOL,), turn_ended=True)
    assert after is not None
    assert after.token_ids == tail.token_ids[1:]
    assert after.authors == tail.authors[1:]


def test_foreign_text_never_becomes_a_control_token(make: Make) -> None:
    tokenizer = make("qwen3")
    tail = Tails(tokenizer).tail(NEW["user"], (), turn_ended=True)
    assert tail is not None
    assert tail.token_ids.count(tokenizer.encode("<|im_end|>")[0]) == 1
    assert "And <|im_end|> now?" in tokenizer.decode(tail.token_ids)


@pytest.mark.parametrize("family", ["mistral"])
def test_a_template_that_writes_tools_late_has_no_tails(make: Make, family: str) -> None:
    assert FAMILIES[family].kind == "not splittable"
    assert not splittable(make(family))
    assert Tails(make(family)).tail(NEW["user"], (TOOL,), turn_ended=True) is None


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no') }}",
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\n{% endfor %}",
        "{% for m in messages %}{% if m.role == 'user' %}<|im_start|>{{ m.content }}<|im_end|>"
        "{% endif %}{% endfor %}",
        "{% for m in messages %}<|im_start|>{{ m.content }}{{ m.content }}<|im_end|>{% endfor %}",
    ],
    ids=["refuses", "begins at no control token", "drops", "writes twice"],
)
def test_what_has_no_tail(tmp_path: Path, template: str) -> None:
    tokenizer = ChatTokenizer(write_policy(tmp_path / "p", template=template))
    assert Tails(tokenizer).tail(NEW["user"], (), turn_ended=True) is None
