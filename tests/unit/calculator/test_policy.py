"""The untrained policy: an ordinary Qwen3 folder whose tags and digits are single tokens."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from safetensors import safe_open

from toolwright.model.tiny_policy import END_OF_TURN, PAD, TURN, VOCABULARY


@pytest.fixture(scope="module")
def folder(policy: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    policy.write(folder, seed=1)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)


def ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def test_the_vocabulary_is_full(tokenizer: Any, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert len(tokenizer) == config["vocab_size"] == VOCABULARY
    assert config["eos_token_id"] == tokenizer.eos_token_id
    assert tokenizer.eos_token == "<|im_end|>"


def test_tags_and_digits_are_single_tokens(policy: ModuleType, tokenizer: Any) -> None:
    for tag in (PAD, TURN, END_OF_TURN, *policy.TAGS):
        assert len(ids(tokenizer, tag)) == 1
    number = ids(tokenizer, "8051")
    assert [tokenizer.decode([token]) for token in number] == list("8051")
    assert ids(tokenizer, "<result> 8051</result>")[2:-1] == number
    assert ids(tokenizer, "<answer> 8051</answer>")[2:-1] == number


def test_text_comes_back(tokenizer: Any, demonstrations: ModuleType, task: ModuleType) -> None:
    for messages in islice(demonstrations.conversations(5), 200):
        prompt = tokenizer.apply_chat_template(
            messages[:1], tokenize=False, add_generation_prompt=True
        )
        assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")
        text = prompt + "".join(message["content"] for message in messages[1:])
        assert tokenizer.decode(ids(tokenizer, text)) == text
    for unseen in islice(task.unseen_wordings(1), 50):
        text = unseen.messages[0]["content"]
        assert tokenizer.decode(ids(tokenizer, text)) == text
    assert tokenizer.decode(ids(tokenizer, "naïve 日本")) == "naïve 日本"


def test_pieces_are_encoded_as_the_whole_is(tokenizer: Any) -> None:
    """The engine encodes prompt, action and observation one by one."""
    pieces = ["<python> print(123*45)</python>", "<result> ", "5535", "</result>",
              "<answer> 5535</answer><|im_end|>"]  # fmt: skip
    apart = [token for piece in pieces for token in ids(tokenizer, piece)]
    assert apart == ids(tokenizer, "".join(pieces))


def test_same_seed_same_bytes(policy: ModuleType, folder: Path, tmp_path: Path) -> None:
    policy.write(tmp_path / "again", seed=1)
    policy.write(tmp_path / "other", seed=2)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    same, other = (folder / "tokenizer.json", tmp_path / "other/tokenizer.json")
    assert same.read_bytes() == other.read_bytes()
    assert (tmp_path / "other/model.safetensors").read_bytes() != (
        folder / "model.safetensors"
    ).read_bytes()


def test_tensors_are_those_of_the_configuration(folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(str(folder)))
    expected = {name: tuple(p.shape) for name, p in model.named_parameters()}
    with safe_open(folder / "model.safetensors", "numpy") as file:
        assert {name: tuple(file.get_tensor(name).shape) for name in file.keys()} == expected  # noqa: SIM118
    assert sum(p.numel() for p in model.parameters()) == 853_376
