"""Who is evaluated: the weights that SGLang servers have, or a model behind an API.

The one place that knows the kinds of samplers; whoever asks for an evaluation is given a codec and
somebody to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Protocol as Shape

from engine.core.build import build_codec
from engine.core.protocols import Protocol
from engine.core.sampler.openai.pool import OpenAIPool
from engine.core.sampler.policy_sampler import PolicySampler
from engine.core.sampler.pool import SamplerPool
from engine.core.text.turns import CALL_TAGS, PackedBytes, TurnCodec
from engine.errors import StartupError
from engine.offline.fixed_weights import Served, fix
from engine.types import Codec
from toolwright.recipe import Recipe, Sampler


class PolicyCodec(Codec, Shape):
    """A codec with its vocabulary, and what tells ids of it from others'."""

    vocab_size: int
    hash: str


def evaluated_codec(recipe: Recipe) -> PolicyCodec:
    """What an evaluation tells text and ids by: the policy's own codec, or where an API is sent
    messages, or nobody has its tokenizer, one of conversations."""
    sampler = recipe.shared.sampler
    if sampler.api == "sglang" or (
        sampler.api == "openai-completions" and sampler.tokenizer == "policy"
    ):
        return build_codec(recipe)
    return TurnCodec(build_codec(recipe) if sampler.tokenizer == "policy" else PackedBytes())


async def evaluated_sampler(
    recipe: Recipe, codec: PolicyCodec, protocol: Protocol, stack: AsyncExitStack
) -> tuple[PolicySampler, Served]:
    """Who samples in an evaluation, open, and what it serves; `stack` closes it. StartupError as of
    the pools. `codec` is of `evaluated_codec`."""
    table = recipe.shared.sampler
    if table.api == "sglang":
        pool = SamplerPool(table, codec, vocab_size=codec.vocab_size)
        stack.push_async_callback(pool.close)
        await pool.open()
        return pool, fix(pool)
    api = OpenAIPool(
        table,
        codec,
        vocab_size=codec.vocab_size,
        leading=getattr(codec, "leading", ""),
        call_tags=getattr(protocol, "call_tags", CALL_TAGS),
        template=recipe.shared.policy.template,
    )
    stack.push_async_callback(api.close)
    await api.open()
    kind = _kind_of({name: str(one["kind"]) for name, one in api.statistics().items()}, table)
    name = f"{api.version.lineage} of {table.api}"
    return api, Served(version=api.version, name=name, kind=kind)


def _kind_of(kinds: Mapping[str, str], table: Sampler) -> str:
    """kinds: by endpoint. StartupError where conversations would be sent in several ways, one of
    each endpoint."""
    if len(set(kinds.values())) > 1 and table.api == "openai-chat" and table.observations == "auto":
        raise StartupError(
            f"the endpoints are of different kinds, "
            f"{', '.join(f'{kind} at {name}' for name, kind in kinds.items())}, and may be sent "
            'observations in different ways: set sampler.observations to "assistant" or "user"'
        )
    return ", ".join(sorted(set(kinds.values())))
