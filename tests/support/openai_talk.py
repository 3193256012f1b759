"""One trajectory through the pool, against `openai_api`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from engine.core.protocols.tagged import Tagged
from engine.core.sampler.openai.pool import OpenAIPool
from engine.core.sampler.policy_sampler import GenerateRequest
from engine.core.sampler.stops import StopTable
from engine.core.text.conversation_codec import ConversationCodec
from engine.core.text.packed import PackedBytes
from engine.core.trajectory.chain import Chain
from engine.types import Generated
from tests.support.openai_api import Api
from toolwright.recipe import Sampler
from toolwright.types import Author, Ids, SamplingParams, Task, ids

END = "<|end_of_turn|>"
"""The end of a turn, as the codec of `talk` writes it."""


class Talk:
    """One trajectory of Tagged: prompt, then actions and observations."""

    def __init__(self, pool: OpenAIPool, codec: Any, prompt: str = "How many?") -> None:
        self.pool = pool
        self.codec = codec
        self.protocol = Tagged()
        prompt_ids = ids(self.protocol.prompt(Task(id="t", prompt=prompt), (), codec))
        self.chain = Chain.begun(prompt_ids)
        self.stops = StopTable(["</python>", codec.end_of_turn], codec)

    @property
    def ids(self) -> Ids:
        return self.chain.token_ids

    async def act(self, most: int = 500, on_progress: Any = None, **sampling: Any) -> Generated:
        found = await self.pool.generate(
            GenerateRequest(
                key="t",
                token_ids=self.ids,
                segments=self.chain.segments,
                sampling=SamplingParams(**{"temperature": 0.0, "top_p": 1.0, **sampling}),
                max_new_tokens=most,
                stops=self.stops,
                on_progress=on_progress,
            )
        )
        self.chain = self.chain.acted(
            found.token_ids, found.logprobs, found.versions,
            turn=0, sampling=None, finish=found.finish,
        )  # fmt: skip
        return found

    async def say(self, most: int = 500, **sampling: Any) -> str:
        return str(self.codec.decode((await self.act(most, **sampling)).token_ids))

    def observe(self, words: str) -> None:
        head, tail = self.protocol.frame("</python>", self.codec)
        body = self.protocol.observation([words], self.codec)
        self.chain = self.chain.appended(ids([*head, *body, *tail]), Author.TOOL, turn=0)


@asynccontextmanager
async def talk(
    here: Api,
    way: str = "openai-chat",
    *,
    codec: Any = None,
    template: Mapping[str, Any] | None = None,
    **table: Any,
) -> AsyncIterator[Talk]:
    """A trajectory whose actions `here` answers. way: `sampler.api`; codec: the policy's own, else
    one of bytes; template: `policy.template`; table: more of `[sampler]`."""
    values: dict[str, Any] = {"endpoints": (here.url,), "patience_s": 5.0, "timeout_s": 5.0}
    if codec is None:
        codec = ConversationCodec(PackedBytes())
        values["tokenizer"] = "bytes"
    made = Sampler(api=way, **{**values, **table})  # type: ignore[arg-type]
    pool = OpenAIPool(made, codec, vocab_size=codec.vocab_size, template=template or {})
    try:
        await pool.open()
        yield Talk(pool, codec)
    finally:
        await pool.close()
