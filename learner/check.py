"""`learner check`: one forward of a policy folder here and by transformers, token by token.

The samplers compute what transformers does. Where this learner differs it would train on the
difference, and no later metric names the reason as plainly.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from learner.errors import ModelError
from learner.model import device, parallel
from learner.model.policy import load_frozen

TOKENS = 96
ROWS = 2
AGREES = 1e-3
"""Largest difference of a log-prob in float32. Seen: 1e-6 on two layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Largest and mean absolute difference of the log-probs of `tokens` random tokens."""

    worst: float
    mean: float
    tokens: int


def check(folder: Path) -> Agreement:
    """Compares the folder's model in float32. ModelError when it cannot be trained or differs."""
    with parallel.ranks():
        model = load_frozen(folder, "float32")
        config = model.bridge.hf_config
        length = min(TOKENS, int(config.max_position_embeddings))
        draw = torch.Generator().manual_seed(0)
        tokens = torch.randint(int(config.vocab_size), (ROWS, length), generator=draw)
        tokens = tokens.to(device.device())
        positions = torch.arange(length, device=tokens.device).expand(tokens.shape)
        with torch.no_grad():
            mine = _log_probs(model.bare(tokens, positions, None), tokens)
            del model
            other = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            theirs = _log_probs(other.to(tokens.device).eval()(tokens).logits, tokens)
    difference = (mine - theirs).abs()
    found = Agreement(
        worst=float(difference.max()), mean=float(difference.mean()), tokens=difference.numel()
    )
    if not found.worst <= AGREES:
        raise ModelError(
            f"{folder}: the log-prob of a token differs from transformers' by {found.worst:.1e} "
            f"(mean {found.mean:.1e} of {found.tokens}): a setting of its config.json is not "
            "computed here"
        )
    return found


def _log_probs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    logp = torch.log_softmax(logits[:, :-1].float(), -1)
    return logp.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
