"""Checks that a limit of tokens fits into the samplers' context. Pure."""

from __future__ import annotations

from engine.errors import StartupError

SPARE_TOKENS = 16
"""A server reports the longest prompt, which is some tokens shorter than its context."""


def check_context(name: str, limit: int, longest_prompt: int | None) -> None:
    """Raises StartupError if a sampler takes shorter prompts than `limit`. name: the limit's key in
    the recipe."""
    if longest_prompt is not None and limit > longest_prompt + SPARE_TOKENS:
        raise StartupError(
            f"{name} = {limit}, but a sampler's context takes prompts of {longest_prompt} tokens: "
            "lower it or start the sampler with a larger --context-length"
        )
