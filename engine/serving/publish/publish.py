"""One publish in progress: its transport, its state, and the calls that wait for a state of it."""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.core.sampler.control import PublishResult
from engine.serving.publish.policy_shape import PolicyShape
from engine.serving.publish.publish_state import Event, PublishState, Stage
from engine.serving.publish.versions import ServedWeights
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport(ABC):
    """A request for a publish, and its way to the samplers. Equal ones mean the same publish."""

    version: WeightVersion
    parent: WeightVersion | None
    """Version at which a new lineage left its parent."""
    learner: str
    folder: Path | None = None
    """Folder of the weights; None if it follows."""

    @abstractmethod
    async def check(self, served: ServedWeights) -> PolicyShape:
        """The policy that the weights are of, before a sampler hears of them. Raises ServiceError
        if the samplers cannot take them."""

    @abstractmethod
    async def move(self, one: Publish, served: ServedWeights) -> PublishResult:
        """Takes a publish from WAITING to COMMITTING, until the samplers go on with the version."""

    def failure(self, error: Exception) -> Exception:
        """The error for callers if `move` raises `error`."""
        return error


class Publish:
    """One publish, from its request to its end."""

    task: asyncio.Task[None]
    """Runs the publish. It ends when the samplers are in order."""

    def __init__(self, transport: Transport) -> None:
        self.id = uuid.uuid4().hex
        self.transport = transport
        self.state = PublishState()
        self._changed = asyncio.Event()

    def become(self, state: PublishState) -> None:
        """Changes the state, and wakes the calls that wait for it."""
        changed, self._changed = self._changed, asyncio.Event()
        self.state = state
        changed.set()

    async def until(self, there: Callable[[PublishState], bool]) -> PublishState:
        """The first state that is `there`. Raises the error of a publish that fails before."""
        while not there(self.state):
            if self.state.error is not None:
                raise self.state.error
            await self._changed.wait()
        return self.state

    async def result(self) -> PublishResult:
        """Returns when the samplers serve the version. Raises the publish's error."""
        state = await self.until(lambda state: state.stage is Stage.SERVED)
        assert state.result is not None
        return state.result

    def fail(self, error: BaseException) -> None:
        """Gives the error to all waiting and later calls, unless the publish is over."""
        if self.state.takes(Event.FAIL):
            why = (
                self.transport.failure(error)
                if isinstance(error, Exception)
                else shutting_down(f"{self.transport.version} was not published")
            )
            self.become(self.state.after(Event.FAIL, error=why))

    async def end(self, why: ServiceError) -> None:
        """Ends the publish, or waits for its commit. Returns when the samplers are in order."""
        if self.state.takes(Event.END):
            self.become(self.state.after(Event.END, error=why))
            self.task.cancel()
        await asyncio.wait({self.task})


def shutting_down(what: str) -> ServiceError:
    """The error of a publish that the engine's end cut short."""
    return ServiceError(
        reasons.ERROR_REASON_DRAINING,
        f"the engine is shutting down: {what}; retry when it is back",
        retry_after=1.0,
    )
