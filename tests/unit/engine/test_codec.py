"""The policy folder's tokenizer and template, and the check that both fit."""

from __future__ import annotations

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


def test_what_is_one_token(codec: HuggingFaceCodec) -> None:
    assert codec.token_id("a") == codec.encode("a")[0]
    assert codec.token_id(" ") == codec.encode(" ")[0]  # written as another letter in the file
    assert codec.token_id("</run>") is None
    assert codec.token_id("é") is None


def test_a_vocabulary_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "small", vocab_size=200)
    with pytest.raises(StartupError, match=r"token id \d+ but the model's vocab_size is 200; take"):
        HuggingFaceCodec(folder)


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("config.json", "{", "is not JSON"),
        ("config.json", "[" * 100_000, r"config\.json cannot be read"),
        ("config.json", '{"model_type": "qwen3"}', "has no vocab_size"),
        ("config.json", '{"model_type": "mistral"}', "a 'mistral' model; supported are qwen2, "),
        ("config.json", None, r"policy\.model: no .*config\.json; give a local"),
        ("tokenizer.json", None, r"no tokenizer in .*copy tokenizer\.json"),
        ("tokenizer.json", "{}", r"tokenizer\.json is not a tokenizer"),
    ],
)
def test_folders_that_are_no_policies(
    tmp_path: Path, policy_folder: Path, file: str, text: str | None, words: str
) -> None:
    folder = tmp_path / "p"
    shutil.copytree(policy_folder, folder)
    (folder / file).unlink()
    if text is not None:
        (folder / file).write_text(text, encoding="utf-8")
    with pytest.raises(StartupError, match=words):
        HuggingFaceCodec(folder)


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
