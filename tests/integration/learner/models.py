"""Tiny random policies in Hugging Face format, and plain transformers as the judge.

transformers' models are imported where they are used: a rank that only wants rows does without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

VOCABULARY = 64
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rope_theta": 5000.0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
}
KINDS = (
    "qwen2-tied",
    "qwen2-untied",
    "qwen3-tied",
    "qwen3-untied",
    "llama-tied",
    "llama-untied",
    "llama3-tied",
    "moe-untied",
)
"""`moe` is Qwen3-MoE; `llama3` is a Llama with scaled positions and a head size of its own, as
Llama 3.2 has them."""


def write_model(folder: Path, kind: str = "qwen3-tied", seed: int = 0, **changes: int) -> Path:
    """A folder with random weights, norms and biases included, and the files beside them. changes:
    keys of SHAPE."""
    from transformers import (
        AutoModelForCausalLM,
        LlamaConfig,
        Qwen2Config,
        Qwen3Config,
        Qwen3MoeConfig,
    )

    torch.manual_seed(seed)
    family, _, tied = kind.partition("-")
    shape: dict[str, Any] = {**SHAPE, **changes, "tie_word_embeddings": tied == "tied"}
    config = {
        "qwen2": lambda: Qwen2Config(**shape),
        "qwen3": lambda: Qwen3Config(**shape, head_dim=16),
        "moe": lambda: Qwen3MoeConfig(**shape, **EXPERTS, head_dim=16),
        "llama": lambda: LlamaConfig(**shape),
        "llama3": lambda: LlamaConfig(**shape, head_dim=16, rope_parameters=LLAMA3),
    }[family]()
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text('{"made": "up"}', encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


def reference_log_probs(
    folder: Path, tokens: list[int], temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """([T-1] log-probs of tokens[1:], [T-1] entropies) by transformers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0, :-1] / temperature
    logp = torch.log_softmax(logits, -1)
    picked = logp.gather(-1, torch.tensor(tokens[1:])[:, None])[:, 0]
    return picked, -(logp.exp() * logp).sum(-1)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """What transformers loads."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
