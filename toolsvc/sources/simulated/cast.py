"""The objects that the tools of one source share: the models, and the world that they have invented
so far."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from contextlib import AsyncExitStack
from pathlib import Path

from toolsvc.backends.chat_model import ChatModel
from toolsvc.errors import StartError
from toolsvc.sources.shared import Shared
from toolsvc.sources.simulated import actor, maker
from toolsvc.sources.simulated.actor import EarlierCall
from toolsvc.sources.simulated.asking import Manner
from toolsvc.sources.simulated.options import SimulatedOptions
from toolsvc.sources.simulated.world import World

Trace = deque[EarlierCall]
"""What the tools of a session answered, the latest of them."""


class Cast:
    """Started by the first of its tools that starts, stopped by the first that stops."""

    def __init__(self, options: SimulatedOptions) -> None:
        """Raises StartError if an API key or a prompt is not there."""
        self.options = options
        self.actor_role = _prompt("actor_prompt", options.actor_prompt, actor.ROLE)
        self.maker_role = _prompt("maker_prompt", options.maker_prompt, maker.ROLE)
        self.schema_changes: Counter[str] = Counter()
        """Keywords that were changed in the schemas of made tools."""
        self.actor = ChatModel(options)
        self.maker = self.actor if options.maker is None else ChatModel(options.maker)
        self.manner = Manner(
            temperature=options.temperature,
            max_tokens=options.max_tokens,
            seed=options.seed,
            tries=options.regenerations + 1,
        )
        self.traces: Shared[Trace] = Shared(lambda _: deque(maxlen=options.history))
        self.world = World(None)
        self._asked = itertools.count()
        self._stack: AsyncExitStack | None = None

    def next_seed(self) -> int:
        """One that no earlier observation had, nor its regenerations."""
        return self.options.seed + next(self._asked) * self.manner.tries

    async def start(self) -> None:
        """A second time it does nothing. Raises StartError if the cache cannot be reached."""
        if self._stack is not None:
            return
        self._stack = AsyncExitStack()
        for model in dict.fromkeys((self.actor, self.maker)):
            await self._stack.enter_async_context(model)
        self.world = World(await self._stack.enter_async_context(self.options.opened_cache()))

    async def stop(self) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    def figures(self) -> dict[str, float]:
        """Those of a ToolMaker of its own have its name before them."""
        own = {} if self.maker is self.actor else self.maker.figures()
        of_maker = {f"maker_{name}": value for name, value in own.items()}
        changes = {"schema_changes_total": float(self.schema_changes.total())}
        return {**self.actor.figures(), **of_maker, **self.world.figures(), **changes}


def _prompt(option: str, path: Path | None, default: str) -> str:
    if path is None:
        return default
    try:
        text = path.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise StartError(f"simulated.{option}={path}: {error}") from error
    if not text:
        raise StartError(f"simulated.{option}={path} is empty: write a system prompt")
    return text
