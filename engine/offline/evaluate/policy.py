"""The evaluated policy: weights that SGLang servers hold, or a model behind an API.

The only module of `evaluate` that knows the kinds of samplers.
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
from engine.core.text.conversation_codec import CALL_TAGS, ConversationCodec, PackedBytes
from engine.errors import StartupError
from engine.offline.fixed_weights import ServedPolicy, fix_weights
from engine.types import Codec
from toolwright.recipe import Recipe, Sampler


class PolicyCodec(Codec, Shape):
    """A codec with its vocabulary size and the hash that its ids belong to."""

    vocab_size: int
    hash: str


def codec_of_policy(recipe: Recipe) -> PolicyCodec:
    """The policy's own codec, or a `ConversationCodec`.

    The latter serves APIs that take messages, and models whose tokenizer is not at hand.
    """
    sampler = recipe.shared.sampler
    if sampler.api == "sglang" or (
        sampler.api == "openai-completions" and sampler.tokenizer == "policy"
    ):
        return build_codec(recipe)
    return ConversationCodec(
        build_codec(recipe) if sampler.tokenizer == "policy" else PackedBytes()
    )


async def open_sampler(
    recipe: Recipe, codec: PolicyCodec, protocol: Protocol, stack: AsyncExitStack
) -> tuple[PolicySampler, ServedPolicy]:
    """An open sampler and the policy that it serves; `stack` closes it.

    codec: from `codec_of_policy`. Raises StartupError as the pools do.
    """
    table = recipe.shared.sampler
    if table.api == "sglang":
        pool = SamplerPool(table, codec, vocab_size=codec.vocab_size)
        stack.push_async_callback(pool.close)
        await pool.open()
        return pool, fix_weights(pool)
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
    kind = _server_kinds({name: str(one["kind"]) for name, one in api.statistics().items()}, table)
    name = f"{api.version.lineage} of {table.api}"
    return api, ServedPolicy(version=api.version, name=name, kind=kind)


def _server_kinds(kinds: Mapping[str, str], table: Sampler) -> str:
    """Kinds of the servers, as one text. kinds: by endpoint.

    Raises StartupError if endpoints of different kinds would be sent conversations differently.
    """
    if len(set(kinds.values())) > 1 and table.api == "openai-chat" and table.observations == "auto":
        raise StartupError(
            "sampler.endpoints are servers of different kinds, "
            f"{', '.join(f'{kind} at {name}' for name, kind in kinds.items())}, which would get "
            'observations in different roles: set sampler.observations to "assistant" or "user"'
        )
    return ", ".join(sorted(set(kinds.values())))
