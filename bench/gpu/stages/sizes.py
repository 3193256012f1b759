"""Published sizes (Qwen3; 7B is Qwen2.5's), and one for a CPU. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """An architecture: widths, counts and vocabulary."""

    hidden: int
    layers: int
    heads: int
    groups: int
    head: int
    feed_forward: int
    vocabulary: int = 151_936
    family: str = "qwen3"
    tied: bool = True

    @property
    def config(self) -> dict[str, Any]:
        """Settings of the Hugging Face configuration."""
        return {
            "model_type": self.family,
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.feed_forward,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.groups,
            "head_dim": self.head,
            "max_position_embeddings": 32768,
            "tie_word_embeddings": self.tied,
        }

    @property
    def parameters(self) -> int:
        """Weights without norms and biases."""
        attention = self.hidden * self.head * (2 * self.heads + 2 * self.groups)
        feed_forward = 3 * self.hidden * self.feed_forward
        tables = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return tables + self.layers * (attention + feed_forward)

    def operations(self, lengths: list[int]) -> float:
        """Floating-point operations of a forward and backward over sequences: 6 a weight and token,
        and causal attention."""
        attention = 6 * self.layers * self.heads * self.head
        return 6.0 * self.parameters * sum(lengths) + attention * sum(n * n for n in lengths)


SIZES = {
    "tiny": Architecture(
        hidden=64, layers=2, heads=4, groups=2, head=16, feed_forward=128, vocabulary=512
    ),
    "0.6B": Architecture(hidden=1024, layers=28, heads=16, groups=8, head=128, feed_forward=3072),
    "1.7B": Architecture(hidden=2048, layers=28, heads=16, groups=8, head=128, feed_forward=6144),
    "4B": Architecture(hidden=2560, layers=36, heads=32, groups=8, head=128, feed_forward=9728),
    "7B": Architecture(
        hidden=3584,
        layers=28,
        heads=28,
        groups=4,
        head=128,
        feed_forward=18_944,
        vocabulary=152_064,
        family="qwen2",
        tied=False,
    ),
}
