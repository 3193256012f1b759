"""A policy folder without weights: a byte-level tokenizer that numbers tokens as the plans do."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from bench.engine.plan import END, STOP

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def write_policy(folder: Path, stop: str = STOP, template: str = TEMPLATE) -> None:
    """Writes a byte-level tokenizer with the special tokens END and `stop`, and a chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([END, stop])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    size = tokenizer.get_vocab_size()
    (folder / "config.json").write_text(
        json.dumps({"model_type": "qwen3", "vocab_size": size}), encoding="utf-8"
    )
