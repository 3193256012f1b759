"""Health, reflection and descriptors, broken."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import grpc.aio

from tests.support.conformance.broken.registry import broken
from tests.support.conformance.reference import Reference
from toolsvc.check.types import Rule
from toolwright import wire
from toolwright.rpc.errors import answers_errors
from toolwright.tool.v1 import tool_pb2 as pb


@broken(Rule.HEALTH, "health-of-the-server", "health-of-the-service")
class WithoutHealth(Reference):
    """Does not serve grpc.health.v1."""

    health = False


@broken(Rule.HEALTH, "reflection-names-the-service")
class WithoutReflection(Reference):
    """Does not serve reflection."""

    reflection = False


class _Raw(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Answers one method by itself, before its message is read."""

    def __init__(
        self, method: str, answer: Callable[[bytes, Any], Coroutine[Any, Any, bytes]]
    ) -> None:
        self._method = method
        self._handler = grpc.unary_unary_rpc_method_handler(answer)

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        if details.method.endswith(f"/{self._method}"):
            return self._handler
        return await continuation(details)


async def _nothing(_request: bytes, _context: Any) -> bytes:
    return b""


async def _down(_request: bytes, context: Any) -> bytes:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "down")
    return b""


@broken(Rule.HEALTH, "an-unknown-method-is-unimplemented")
class AnswersEverything(Reference):
    """Answers a method that the contract does not have."""

    interceptors = (_Raw("NoSuchMethod", _nothing),)


@broken(Rule.INPUT, "bytes-that-are-no-message-are-refused")
class AnswersGarbage(Reference):
    """Answers bytes that are no message."""

    interceptors = (_Raw("RenewLeases", _nothing),)


@broken(Rule.INPUT, "too-deep-a-message-harms-nobody")
class GoesDown(Reference):
    """Is not available any more once it was sent what it cannot read."""

    interceptors = (_Raw("CallTool", _down),)


@broken(Rule.DESCRIBE, "tools-are-listed")
class Nameless(Reference):
    """Does not say what service it is."""

    @answers_errors
    async def ListTools(self, request: Any, context: Any) -> pb.ListToolsResponse:
        return pb.ListToolsResponse(tools=self.tools())


@broken(Rule.DESCRIBE, "names-are-unique-words")
class TwoOfOneName(Reference):
    """Has two tools of one name."""

    def tools(self) -> list[pb.ToolDescriptor]:
        return [*super().tools(), super().tools()[0]]


class _Changed(Reference):
    """Every descriptor is changed."""

    def tools(self) -> list[pb.ToolDescriptor]:
        tools = super().tools()
        for tool in tools:
            self.change(tool)
        return tools

    def change(self, tool: pb.ToolDescriptor) -> None:
        raise NotImplementedError


@broken(Rule.DESCRIBE, "tools-say-what-they-are-for")
class WithoutUsage(_Changed):
    """Its tools have no usage text."""

    def change(self, tool: pb.ToolDescriptor) -> None:
        tool.usage = ""


@broken(Rule.DESCRIBE, "schemas-are-json-schemas")
class RequiresTheUnknown(_Changed):
    """Its schemas require arguments that they do not have."""

    def change(self, tool: pb.ToolDescriptor) -> None:
        schema = wire.mapping(tool.arguments_schema) | {"required": ["no-such-argument"]}
        tool.arguments_schema.CopyFrom(wire.struct(schema))


@broken(Rule.DESCRIBE, "action-formats-are-whole")
class TagWithoutArgument(_Changed):
    """Its tags fill an argument that the schema does not have."""

    def change(self, tool: pb.ToolDescriptor) -> None:
        if tool.action_format.HasField("tag"):
            tool.action_format.tag.argument = "no-such-argument"


@broken(Rule.DESCRIBE, "stop-strings-end-an-action")
class StopsAtOnce(_Changed):
    """Its tools have an empty stop string."""

    def change(self, tool: pb.ToolDescriptor) -> None:
        tool.stop_strings.append("")


@broken(Rule.DESCRIBE, "run-limits-are-named")
class WithoutRunLimit(_Changed):
    """Its tools name no run limit."""

    def change(self, tool: pb.ToolDescriptor) -> None:
        tool.ClearField("default_run_limit")


@broken(Rule.MEDIA, "media-are-announced")
class UnannouncedMedia(_Changed):
    """Its tools do not say that they answer media."""

    def change(self, tool: pb.ToolDescriptor) -> None:
        tool.capabilities.media = False


@broken(Rule.DESCRIBE, "a-session-has-all-tools")
class LeavesOneOut(Reference):
    """A session that names no tools lacks one."""

    def session_tools(self, request: pb.OpenSessionRequest) -> list[pb.ToolDescriptor]:
        tools = super().session_tools(request)
        return tools if request.tools else tools[1:]


@broken(Rule.DESCRIBE, "a-session-has-the-tools-it-named")
class GivesThemAll(Reference):
    """A session that names its tools gets the others too."""

    def session_tools(self, request: pb.OpenSessionRequest) -> list[pb.ToolDescriptor]:
        super().session_tools(request)
        return self.tools()


@broken(Rule.DESCRIBE, "isolation-is-told")
class StrangeIsolation(Reference):
    """Names a level of isolation that the contract does not have."""

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        opened = await super().open(request)
        opened.isolation = "strong"
        return opened
