"""The parts of every program that rolls out trajectories: codec, tasks, sampler, tool services.

`engine serve`, `engine eval` and `engine sample` assemble one `EngineCore` each. Each adds where
tasks come from and where trajectories go.

Invariants
- Constructing a core starts nothing. `open_sampler` and `open_tools` do, in this order. The
  caller's stack closes what they opened, in reverse order.
- A core knows neither journal nor learner.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from typing import Protocol as Shape

from engine.config import EngineTable
from engine.core.branching.branching_checks import check_top_k
from engine.core.build import (
    build_codec,
    build_protocol,
    build_rewards,
    build_tools,
    task_recipes,
)
from engine.core.protocols import Protocol
from engine.core.rewards.rewards import Rewards
from engine.core.rollout.assignment import OutsideRun, RolloutContext
from engine.core.rollout.decide import Rules
from engine.core.sampler.context import check_context
from engine.core.sampler.fleet import Connect as ConnectSampler
from engine.core.sampler.openai.pool import OpenAIPool
from engine.core.sampler.policy_sampler import PolicySampler
from engine.core.sampler.pool import SamplerPool
from engine.core.text.conversation_codec import CALL_TAGS, ConversationCodec
from engine.core.text.packed import PackedBytes
from engine.core.tools.link.service_link import Connect as ConnectTools
from engine.core.tools.services import ToolServices
from engine.errors import StartupError
from engine.types import Codec, ToolSpec
from toolwright.recipe import Recipe, task_key
from toolwright.recipe import Sampler as SamplerTable


class MakePool(Shape):
    """The constructor of `SamplerPool`, or of a kind of it."""

    def __call__(
        self,
        table: SamplerTable,
        codec: Codec,
        *,
        vocab_size: int,
        connect: ConnectSampler | None = None,
    ) -> SamplerPool: ...


class PolicyCodec(Codec, Shape):
    """A codec, its vocabulary's size, and the hash of tokenizer and template."""

    vocab_size: int
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCore:
    """One task of the recipe. recipe: as if there were no other task."""

    recipe: Recipe
    protocol: Protocol
    rewards: Rewards


def policy_codec(recipe: Recipe) -> PolicyCodec:
    """The policy's own codec. An API that takes messages, or whose tokenizer is unknown, gets a
    codec of conversations."""
    sampler = recipe.shared.sampler
    if sampler.api == "sglang" or (
        sampler.api == "openai-completions" and sampler.tokenizer == "policy"
    ):
        return build_codec(recipe)
    return ConversationCodec(
        build_codec(recipe) if sampler.tokenizer == "policy" else PackedBytes()
    )


class EngineCore:
    """The parts of one recipe. `sampler` and `tools` exist once they are opened."""

    sampler: PolicySampler
    tools: ToolServices

    def __init__(
        self,
        recipe: Recipe,
        table: EngineTable,
        stack: AsyncExitStack,
        *,
        connect_sampler: ConnectSampler | None = None,
        connect_tools: ConnectTools | None = None,
        make_pool: MakePool = SamplerPool,
    ) -> None:
        """Raises StartupError for a protocol, reward or policy folder that cannot be used.

        stack: closes the parts. connect_sampler, connect_tools: replace HTTP and gRPC, for the
        simulator. make_pool: makes the pool of SGLang servers.
        """
        self.recipe = recipe
        self.codec = policy_codec(recipe)
        self.tasks = {
            name: TaskCore(recipe=own, protocol=build_protocol(own), rewards=build_rewards(own))
            for name, own in task_recipes(recipe).items()
        }
        for task in self.tasks.values():
            stack.callback(task.rewards.close)
        self.failures: Counter[str] = Counter()
        """Attempts that infrastructure ended, by stop reason."""
        self._table = table
        self._stack = stack
        self._connect_sampler = connect_sampler
        self._connect_tools = connect_tools
        self._make_pool = make_pool

    async def open_pool(self) -> SamplerPool:
        """Opens the SGLang servers, which accept publishes. Raises StartupError if no server
        answers, or if a server takes shorter prompts than the limits allow."""
        table = self.recipe.shared.sampler
        pool = self._make_pool(
            table, self.codec, vocab_size=self.codec.vocab_size, connect=self._connect_sampler
        )
        await self._open(pool)
        return pool

    async def open_sampler(self) -> PolicySampler:
        """Opens the sampler: SGLang servers as `open_pool` does, or the endpoints of the recipe's
        API."""
        shared = self.recipe.shared
        if shared.sampler.api == "sglang":
            return await self.open_pool()
        protocol = next(iter(self.tasks.values())).protocol
        pool = OpenAIPool(
            shared.sampler,
            self.codec,
            vocab_size=self.codec.vocab_size,
            leading=getattr(self.codec, "leading", ""),
            call_tags=getattr(protocol, "call_tags", CALL_TAGS),
            template=shared.policy.template,
        )
        await self._open(pool)
        return pool

    async def _open(self, pool: PolicySampler) -> None:
        self._stack.push_async_callback(pool.close)
        await pool.open()
        for name, task in self.recipe.shared.each_task.items():
            check_top_k(task.branching, self.codec.vocab_size)
            check_context(f"{task_key(name)}.limits.model", task.limits.model, pool.longest_prompt)
        self.sampler = pool

    async def open_tools(
        self,
        owner: str,
        *,
        wait_until_up: bool = False,
        life: str = "",
        started: Mapping[str, str] | None = None,
    ) -> dict[str, list[ToolSpec]]:
        """Opens the tool services. Returns the tools of each service by its name.

        owner: the same in every life of the program. wait_until_up: whether to wait for an
        unreachable service. life, started: as for `build_tools`. Raises StartupError if a service
        does not answer or lacks a tool.
        """
        self.tools = build_tools(
            self.recipe, owner, connect=self._connect_tools, life=life, started=started
        )
        self._stack.push_async_callback(self.tools.close)
        return await self.tools.open(wait_until_up=wait_until_up)

    def rollout_context(self, task: str = "", outside: OutsideRun | None = None) -> RolloutContext:
        """What the rollouts of a task share. Sampler and tools must be open. outside: runs the
        attempts of the task's agent. Raises StartupError for an agent that nothing runs."""
        own = self.tasks[task]
        if own.recipe.shared.task.agent is not None and outside is None:
            raise StartupError(
                f"{task_key(task)}.agent: only `engine serve` serves outside agents; leave the "
                "table out here, and our own turn loop writes the trajectories"
            )
        return RolloutContext(
            rules=Rules(
                protocol=own.protocol,
                codec=self.codec,
                limits=own.recipe.shared.task.limits,
                observation_keep=self._table.observation_keep,
            ),
            pool=self.sampler,
            tools=self.tools,
            tokenizer_hash=self.codec.hash,
            failures=self.failures,
            outside=outside,
        )

    @asynccontextmanager
    async def kept_alive(self, *others: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """Brings servers back, renews leases and restarts the engine's own tool processes while the
        block runs.

        others: further endless work. All of it is cancelled at the end of the block. An error of
        any cancels the block and is raised in a BaseExceptionGroup.
        """
        async with asyncio.TaskGroup() as group:
            work = (
                self.sampler.keep_alive(),
                self.tools.keep_leases(),
                self.tools.keep_processes(),
                *others,
            )
            tasks = [group.create_task(one) for one in work]
            yield
            for task in tasks:
                task.cancel()
