"""One trajectory's session on one tool service, at the endpoint that holds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from engine.core.images.media import Media
from engine.core.tools.link.endpoint import Endpoint
from engine.core.tools.link.service_link import ServiceLink
from engine.errors import ToolServiceFailed
from engine.types import SessionRef, ToolSpec
from toolwright.recipe import Tool as ToolTable
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb

REACH_SECONDS = 5.0
"""Time within which a working service answers from memory."""

log = structlog.get_logger("tools")


class ServiceSession:
    """An open session."""

    def __init__(
        self, link: ServiceLink, ref: SessionRef, media: Sequence[Media] = (), fence: int = 0
    ) -> None:
        """media: of the task; a fork may have to send them again. fence: goes with each request, so
        that the service refuses those of earlier holders; 0 = the service reads none."""
        self.link = link
        self.session_id = ref.session_id
        self.address = ref.endpoint
        self.tools = list(ref.tools)
        self.cancels = ref.cancels
        self.media = tuple(media)
        self.fence = fence
        self.is_lost = False
        """The service has reported that it no longer holds the session."""
        self.on_lost: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        """The service's name in the recipe."""
        return self.link.name

    @property
    def table(self) -> ToolTable:
        return self.link.table

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint that holds the session now."""
        return self.link.endpoint_at(self.address)

    @property
    def ref(self) -> SessionRef:
        """Reference by which a later life of the engine finds the session."""
        return SessionRef(
            service=self.name,
            session_id=self.session_id,
            endpoint=self.address,
            tools=tuple(self.tools),
            cancels=self.cancels,
        )

    @property
    def stateless(self) -> bool:
        """Whether no call changes what a later one sees: then any other session is as good."""
        return not any(tool.stateful for tool in self.tools)

    def add_tools(self, tools: Sequence[ToolSpec]) -> None:
        """Adds tools to the session."""
        known = {tool.name for tool in self.tools}
        self.tools += [tool for tool in tools if tool.name not in known]

    def move(self, address: str) -> None:
        """Records that another endpoint holds the session."""
        log.info("session_moved", session=self.session_id, endpoint=address)
        self.address = address

    def mark_lost(self) -> None:
        """Records that the service no longer holds the session."""
        self.is_lost = True
        if self.on_lost is not None:
            self.on_lost()

    async def check_reach(self) -> None:
        """Raises ToolServiceFailed if the endpoint does not answer."""
        endpoint = self.endpoint
        try:
            await endpoint.unary(
                endpoint.stub.ListTools, pb.ListToolsRequest(), timeout=REACH_SECONDS
            )
        except (ServiceError, TransportError) as error:
            raise ToolServiceFailed(
                f"tools.{self.name}: {self.address} did not answer when the trajectory's time "
                f"was up ({error})"
            ) from error
