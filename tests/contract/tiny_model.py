"""Writes a random Qwen3 folder of a few hundred thousand weights, without a tokenizer.

Run by the interpreter of .venv-sglang, which has torch and transformers of the right versions:

    .venv-sglang/bin/python tests/contract/tiny_model.py FOLDER SEED [VOCABULARY]
"""

from __future__ import annotations

import sys

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM


def main(folder: str, seed: int, vocabulary: int = 512) -> None:
    """Save the model; the same seed gives the same weights."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=4096,
        eos_token_id=vocabulary - 1,
        bos_token_id=vocabulary - 2,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).float().save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
