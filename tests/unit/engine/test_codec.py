"""The policy folder's tokenizer and template, and the check that both fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.protocols.chat import Chat
from engine.core.protocols.tagged import Tagged
from engine.core.rehearsal import rehearse
from engine.core.text.codec import HuggingFaceCodec
from engine.errors import StartupError
from tests.support.policy import (
    PLAIN_TEMPLATE,
    QWEN_TEMPLATE,
    VISION_TEMPLATE,
    write_policy,
    write_vision_policy,
)
from toolwright.types import Task

TASK = Task(id="t", messages=({"role": "user", "content": "q"},))


@settings(max_examples=30)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_text_survives_and_ids_are_only_ever_joined(codec: HuggingFaceCodec, text: str) -> None:
    ids = codec.encode(text)
    assert codec.decode(ids) == text
    assert codec.decode([*ids, *codec.encode("é>x")]) == text + "é>x"


def test_special_tokens_are_one_id_and_are_shown(codec: HuggingFaceCodec) -> None:
    assert codec.encode("</python>") == [codec.token_id("</python>")]
    assert codec.decode(codec.encode("a<|im_end|>b")) == "a<|im_end|>b"
    assert codec.end_of_turn == "<|im_end|>"


def test_what_is_one_token(codec: HuggingFaceCodec) -> None:
    assert codec.token_id("a") == codec.encode("a")[0]
    assert codec.token_id(" ") == codec.encode(" ")[0]  # written as another letter in the file
    assert codec.token_id("</run>") is None
    assert codec.token_id("é") is None


def test_the_hash_is_tokenizer_and_template(tmp_path: Path, codec: HuggingFaceCodec) -> None:
    same = HuggingFaceCodec(write_policy(tmp_path / "same"))
    assert same.hash == codec.hash
    other = HuggingFaceCodec(write_policy(tmp_path / "other", template="{{ messages }}"))
    assert other.hash != codec.hash


def test_a_vocabulary_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "small", vocab_size=200)
    with pytest.raises(StartupError, match=r"token id \d+ but the model's vocab_size is 200; take"):
        HuggingFaceCodec(folder)


def test_folders_that_are_no_policies(tmp_path: Path, policy_folder: Path) -> None:
    with pytest.raises(
        StartupError, match=r"policy\.model: no .*absent.config\.json; give a local"
    ):
        HuggingFaceCodec(tmp_path / "absent")
    folder = tmp_path / "p"
    shutil.copytree(policy_folder, folder)
    (folder / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(StartupError, match="is not JSON"):
        HuggingFaceCodec(folder)
    for strange in ("[1]", "[" * 100_000, '"qwen3"'):
        (folder / "config.json").write_text(strange, encoding="utf-8")
        with pytest.raises(StartupError, match=r"config\.json cannot be read"):
            HuggingFaceCodec(folder)
    (folder / "config.json").write_text(
        '{"model_type": "qwen3", "text_config": [1]}', encoding="utf-8"
    )
    with pytest.raises(StartupError, match="has no vocab_size"):
        HuggingFaceCodec(folder)
    (folder / "config.json").write_text(
        json.dumps({"model_type": "mistral", "vocab_size": 9}), encoding="utf-8"
    )
    with pytest.raises(StartupError, match="a 'mistral' model; supported are qwen2, qwen3"):
        HuggingFaceCodec(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}), encoding="utf-8")
    with pytest.raises(StartupError, match="has no vocab_size"):
        HuggingFaceCodec(folder)
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(policy_folder / "config.json", bare)
    with pytest.raises(StartupError, match=r"no tokenizer in .*copy tokenizer\.json"):
        HuggingFaceCodec(bare)


def test_a_template_that_does_not_fit_the_protocol_is_found_at_the_start(
    tmp_path: Path, codec: HuggingFaceCodec
) -> None:
    assert rehearse(Tagged(), codec, TASK) > 10
    refuses = "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}"
    refuses += "{% endif %}{{ m.content }}{% endfor %}"
    strict = HuggingFaceCodec(write_policy(tmp_path / "strict", template=refuses))
    assert rehearse(Tagged(), strict, TASK) > 0
    with pytest.raises(StartupError, match=r"task\.protocol does not fit .*no tools"):
        rehearse(Chat(), strict, TASK)
    none = HuggingFaceCodec(write_policy(tmp_path / "none", template=None))
    with pytest.raises(StartupError, match=r"task\.protocol does not fit policy\.model"):
        rehearse(Tagged(), none, TASK)


CONVERSATION = (
    {"role": "system", "content": "be <b>brief</b> & kind"},
    {"role": "user", "content": "wieviel ist 1+1? \N{SNOWMAN}"},
    {"role": "assistant", "content": "<python> 1+1</python>"},
    {"role": "tool", "content": "2 > 1"},
)
TOOLS = (
    {"type": "function", "function": {"name": "add", "description": "é <i>", "parameters": {}}},
)
MARKS = (
    "{{ bos_token }}{% for m in messages %}{% if loop.index > 3 %}{% break %}{% endif %}\n"
    "    {% generation %}{{ m.content }}{% endgeneration %}\n"
    "{% endfor %}{{ tools | tojson(indent=2) }}{{ eos_token }}{{ strftime_now('%Y') }}"
)


@pytest.mark.parametrize("template", [PLAIN_TEMPLATE, QWEN_TEMPLATE, MARKS])
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_ids_and_text_are_those_of_transformers(
    tmp_path: Path, template: str, tools: tuple[dict[str, object], ...] | None
) -> None:
    from transformers import AutoTokenizer

    folder = write_policy(tmp_path / "p", template=template, bos_token="<|endoftext|>")
    theirs = AutoTokenizer.from_pretrained(folder)
    ours = HuggingFaceCodec(folder)
    for prompt in (True, False):
        text = ours.chat(CONVERSATION, tools=tools, generation_prompt=prompt)
        assert text == theirs.apply_chat_template(
            list(CONVERSATION),
            tools=list(tools) if tools else None,
            tokenize=False,
            add_generation_prompt=prompt,
        )
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)
    assert ours.end_of_turn == theirs.eos_token


def test_several_templates(tmp_path: Path) -> None:
    """Named ones, in the tokenizer's configuration; a file beside it wins."""
    folder = write_policy(tmp_path / "p", template=None)
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["chat_template"] = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "{{ tools | length }} tools"},
    ]
    file.write_text(json.dumps(config), encoding="utf-8")
    codec = HuggingFaceCodec(folder)
    assert codec.chat(CONVERSATION) == "plain"
    assert codec.chat(CONVERSATION, tools=TOOLS) == "1 tools"
    (folder / "chat_template.jinja").write_text("the file", encoding="utf-8")
    assert HuggingFaceCodec(folder).chat(CONVERSATION, tools=TOOLS) == "the file"


def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "p")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(StartupError, match=r"tokenizer\.json is not a tokenizer"):
        HuggingFaceCodec(folder)


@pytest.mark.parametrize(
    ("config", "template", "says"),
    [
        ({"image_token_id": 3}, None, "is not one token 3"),
        ({}, VISION_TEMPLATE.replace("<|image_pad|>", "<|image_pad|>" * 2), "is not one token"),
        ({}, PLAIN_TEMPLATE, "is not one token"),
        ({}, "{{ raise_exception('no lists') }}", "no lists"),
    ],
)
def test_images_whose_template_does_not_fit_are_refused(
    tmp_path: Path, config: dict[str, int], template: str | None, says: str
) -> None:
    folder = write_vision_policy(tmp_path / "vision", **config)
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    with pytest.raises(StartupError, match=says):
        HuggingFaceCodec(folder)


def test_the_vocabulary_may_be_the_text_model_s(tmp_path: Path) -> None:
    folder = write_vision_policy(
        tmp_path / "vision", vocab_size=None, text_config={"vocab_size": 400}
    )
    assert HuggingFaceCodec(folder).vocab_size == 400
