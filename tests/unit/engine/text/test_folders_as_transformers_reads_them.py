"""Named templates and special tokens come from the files that transformers reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.core.text.codec import HuggingFaceCodec
from engine.errors import StartupError
from tests.support.families import write_family
from toolwright.model.model_folder import special_tokens, tokenizer_hash

pytestmark = pytest.mark.quick

MESSAGES = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "a", "description": "A", "parameters": {}}}]
PLAIN = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"


def config_of(folder: Path, **changes: Any) -> dict[str, Any]:
    """tokenizer_config.json with these keys; None removes one."""
    file = folder / "tokenizer_config.json"
    found = json.loads(file.read_text(encoding="utf-8")) | changes
    kept = {name: value for name, value in found.items() if value is not None}
    file.write_text(json.dumps(kept), encoding="utf-8")
    return kept


def named(folder: Path, **templates: str) -> None:
    (folder / "additional_chat_templates").mkdir()
    for name, text in templates.items():
        file = folder / "additional_chat_templates" / f"{name}.jinja"
        file.write_text(text, encoding="utf-8")


def in_objects(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    config_of(folder, chat_template={"default": PLAIN, "tool_use": "TOOLS " + PLAIN})


def in_a_list(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    both = {"default": PLAIN, "tool_use": "TOOLS " + PLAIN, "rag": "RAG"}
    config_of(folder, chat_template=[{"name": n, "template": text} for n, text in both.items()])


def eos_in_another_file(folder: Path) -> None:
    config_of(folder, eos_token="<|endoftext|>", added_tokens_decoder=None)
    special = {"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|endoftext|>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(special), encoding="utf-8")


def another_file_does_not_count(folder: Path) -> None:
    decoder = {"257": {"content": "<|im_start|>", "special": True}}
    config_of(folder, added_tokens_decoder=decoder, bos_token="<|im_start|>")
    (folder / "special_tokens_map.json").write_text('{"bos_token": "x"}', encoding="utf-8")


def a_model_s_own_tokens(folder: Path) -> None:
    text = "{{ image_token }}" + PLAIN
    (folder / "chat_template.jinja").write_text(text, encoding="utf-8")
    config_of(folder, extra_special_tokens={"image_token": "<|im_start|>"})


MARKS = (
    "{% for m in messages %}{% if loop.index > 3 %}{% break %}{% endif %}\n"
    "    {% generation %}{{ m.content }}{% endgeneration %}\n"
    "{% endfor %}{{ tools | tojson(indent=2) }}<|im_end|>{{ strftime_now('%Y') }}"
)


def marks(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(MARKS, encoding="utf-8")


FORMS: dict[str, Callable[[Path], None]] = {
    "a file": lambda folder: named(folder, tool_use="TOOLS " + PLAIN),
    "several files": lambda folder: named(folder, tool_use="T" + PLAIN, rag="R", other="O"),
    "objects": in_objects,
    "a list": in_a_list,
    "no template with that name": lambda folder: named(folder, rag="RAG"),
    "eos in another file": eos_in_another_file,
    "another file does not count": another_file_does_not_count,
    "marks": marks,
    "own tokens": a_model_s_own_tokens,
}


@pytest.mark.parametrize("form", FORMS)
def test_prompts_are_those_of_transformers(tmp_path: Path, form: str) -> None:
    from transformers import AutoTokenizer

    folder = write_family(tmp_path / "p", "qwen2_5", template=PLAIN)
    FORMS[form](folder)
    theirs, ours = AutoTokenizer.from_pretrained(folder), HuggingFaceCodec(folder)
    for tools in (None, TOOLS):
        right = theirs.apply_chat_template(
            MESSAGES, tools=tools, tokenize=False, add_generation_prompt=True
        )
        assert ours.chat(MESSAGES, tools=tools) == right
    assert special_tokens(folder)["eos_token"] == theirs.eos_token
    assert theirs.eos_token in ours.turn_ends


def test_variables_of_the_template_are_in_the_hash(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "p", "qwen3")
    hashes = {
        tokenizer_hash(folder, {"enable_thinking": value, "x": [1]})
        for value in (True, False, None)
    }
    assert len(hashes | {tokenizer_hash(folder)}) == 4
    assert tokenizer_hash(folder, {}) == tokenizer_hash(folder)
    ordered = tokenizer_hash(folder, {"x": [1], "enable_thinking": True})
    assert ordered in hashes


@pytest.mark.parametrize(
    "template", [7, {"default": 7}, ["x"], [{"name": "default"}], [{"name": 1, "template": ""}]]
)
def test_a_template_of_another_form_is_refused_by_its_file(tmp_path: Path, template: Any) -> None:
    folder = write_family(tmp_path / "p", "qwen2_5", template=PLAIN)
    (folder / "chat_template.jinja").unlink()
    config_of(folder, chat_template=template)
    with pytest.raises(StartupError, match=r"chat_template in .*tokenizer_config\.json is neither"):
        HuggingFaceCodec(folder)


def test_a_folder_without_any_end_of_turn_is_refused(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "p", "qwen2_5", template="{{ messages[0].content }}")
    (folder / "generation_config.json").unlink()
    config_of(folder, eos_token=None)
    with pytest.raises(StartupError, match="no token that ends a turn"):
        HuggingFaceCodec(folder)
