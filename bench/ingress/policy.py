"""A policy folder without weights whose tokenizer has merges, and texts that it encodes.

A text of n words has about n tokens, as English has with a published vocabulary.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}" + END + "\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WORDS = [
    "".join(Random(f"word {number}").choices(_LETTERS, k=2 + number % 6)) for number in range(4096)
]


def words(count: int, seed: str) -> str:
    """A text of so many words."""
    return " ".join(Random(seed).choices(_WORDS, k=count))


def write_policy(folder: Path) -> Tokenizer:
    """Writes the folder. Returns its tokenizer."""
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=16_384,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|im_start|>", END],
        show_progress=False,
    )
    tokenizer.train_from_iterator((" ".join(_WORDS) for _ in range(2)), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    config = {"model_type": "qwen3", "vocab_size": tokenizer.get_vocab_size()}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return tokenizer
