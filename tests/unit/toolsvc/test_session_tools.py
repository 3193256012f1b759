"""Tools that one session alone has: given when it opens, and by calls."""

from collections.abc import Sequence

import pytest

from tests.support.hosts import Counter, calling, hosting, opening, refused, said
from toolsvc.edge.wire import fill_result
from toolsvc.errors import Reason
from toolsvc.host.host import Host
from toolsvc.plugin.tool import Tool
from toolsvc.types import Call, Recorded, SessionInfo
from toolwright.tool.v1 import tool_pb2 as pb


class Named(Counter):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class Maker(Tool):
    """Gives the tools that the task names, and one more for every call."""

    name = "make"
    stateful = True

    def open(self, session: SessionInfo) -> tuple[SessionInfo, list[Tool]]:
        return session, [Named(name) for name in session.metadata.get("own", ())]

    async def call(self, state: tuple[SessionInfo, list[Tool]], call: Call) -> str:
        session, own = state
        if call.arguments["text"] in session.names:
            return "taken"
        own.append(Named(call.arguments["text"]))
        return "made"

    def session_tools(self, state: tuple[SessionInfo, list[Tool]]) -> Sequence[Tool]:
        return state[1]


class Giver(Maker):
    callable = False


def making(call_id: str, name: str) -> object:
    return calling(call_id, tool="make", arguments={"text": name}, digest=call_id.encode())


async def test_a_call_makes_a_tool_and_its_result_says_so() -> None:
    async with hosting(Maker()) as host:
        with refused(Reason.UNKNOWN_TOOL):
            await host.call(calling("a"))
        made = await host.call(making("b", "counter"))
        assert isinstance(made, Recorded)
        assert [tool.name for tool in made.new_tools] == ["counter"]
        wire = pb.CallResult()
        fill_result(wire, made)
        assert [tool.name for tool in wire.new_tools] == ["counter"]
        assert said(await host.call(calling("c", turn=1))) == "1"
        again = await host.open(opening())
        assert [tool.name for tool in again.tools] == ["make", "counter"]


async def test_a_maker_sees_which_names_the_session_has() -> None:
    async with hosting(Maker(), Counter()) as host:
        assert said(await host.call(making("a", "counter"))) == "taken"
        assert said(await host.call(making("b", "other"))) == "made"
        assert said(await host.call(making("c", "other"))) == "taken"


async def test_two_tools_of_one_name_open_no_session() -> None:
    async with Host([Maker(), Counter()]) as host:
        with pytest.raises(Exception, match="a second tool 'counter'"):
            await host.open(opening(metadata={"own": ["counter"]}))
        assert host.session_ids == []


async def test_one_that_only_gives_tools_is_neither_seen_nor_called() -> None:
    async with Host([Giver()]) as host:
        assert host.list_tools() == ()
        opened = await host.open(opening(metadata={"own": ["counter"]}))
        assert [tool.name for tool in opened.tools] == ["counter"]
        with refused(Reason.UNKNOWN_TOOL):
            await host.call(making("a", "more"))


async def test_what_a_session_was_given_is_closed_with_it() -> None:
    own = Named("own")

    class Gives(Giver):
        def session_tools(self, state: object) -> Sequence[Tool]:
            return (own,)

    async with hosting(Gives()) as host:
        await host.close("s")
    assert own.opened == own.closed == ["s"]
