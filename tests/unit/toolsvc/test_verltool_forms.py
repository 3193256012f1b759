"""Actions read and observations framed as VerlTool's own tools do, beside what those answered
(`recorded.json`), and trajectories that call several tools."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.linear import assert_linear
from toolsvc.errors import Reason, Refused
from toolsvc.host.host import Host
from toolsvc.plugin.tool import Tool
from toolsvc.sources.verltool.forms import FORMS, NOTHING_FOUND
from toolsvc.sources.verltool.http import ObservationServer
from toolsvc.sources.verltool.program import END, program
from toolsvc.tools import search
from toolsvc.types import Call, RawFormat, Result, SessionInfo, TagFormat, Text, ToolError
from toolwright.types import ToolErrorKind

RECORDED = json.loads(
    (Path(__file__).parents[2] / "support" / "verltool" / "recorded.json").read_text("utf-8")
)


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: f"{one['tool']}: {one['action'][:40]!r}")
def test_an_action_is_answered_to_the_byte_as_there(one: Any) -> None:
    form = FORMS[one["tool"]]
    arguments = form.read(one["action"], one["extra"])
    if one["read"] is None:
        assert arguments is None
        told = form.without_call(one["action"], one["extra"], True)
        assert told is not None
    else:
        (given,) = arguments.values()
        assert given == {
            "python": program(one["read"], ""),
            "sql": f"<sql>{one['read']}</sql>",
        }.get(one["tool"], one["read"])
        ours = one["said"] + {"sql": "\n3 turns left.", "python": END}.get(one["tool"], "")
        told = form.told(one["action"], one["extra"], Result.of(ours))
    assert tuple(told) == (one["observation"], one["done"], one["valid"])


def test_a_program_that_does_not_end_reads_as_there() -> None:
    error = ToolError(kind=ToolErrorKind.TIMEOUT, message="TimeoutError: stopped after 20 s")
    late = Result(observation=(Text(text=error.message),), error=error)
    told = FORMS["python"].told("<python>x</python>", {}, late)
    said = "Execution timed out after 10 seconds."
    assert told.observation == f"\n<result>\n{said}\n</result>\n"


def test_nothing_found_is_nothing() -> None:
    assert NOTHING_FOUND == search.NOTHING_FOUND
    told = FORMS["search"].told("<search>x</search>", {}, Result.of(NOTHING_FOUND))
    assert told == ("\n\n<information></information>\n\n", False, True)


@pytest.mark.parametrize("name", FORMS)
def test_actions_are_read_in_step_with_their_length(name: str) -> None:
    form = FORMS[name]
    assert_linear(
        lambda text: (form.read(text, {}), form.without_call(text, {}, True)), "<python><search>"
    )


class Python(Tool):
    registered = True
    name = "python"
    description = "Runs Python."
    format = TagFormat(open="<python>", close="</python>", argument="code")

    async def call(self, state: object, call: Call) -> str:
        return str(call.arguments["code"])


class Sql(Tool):
    registered = True
    name = "sql"
    format = RawFormat()
    stop_strings = ("</sql>", "</solution>")

    async def open(self, session: SessionInfo) -> str:
        if "database" not in session.metadata:
            raise Refused(Reason.INVALID_REQUEST, "the task names no database")
        return str(session.metadata["database"])

    async def call(self, state: str, call: Call) -> str:
        return f"{state}: {call.arguments['action']}\n0 turns left."


class Shared(Tool):
    """Two of them keep something together, as tools of one server do."""

    held: dict[str, int] = {}  # noqa: RUF012

    async def open(self, session: SessionInfo) -> str:
        return session.session_id

    async def call(self, state: str, call: Call) -> str:
        self.held[state] = self.held.get(state, 0) + 1
        return str(self.held[state])


class One(Shared):
    name = "one"


class Two(Shared):
    name = "two"


@asynccontextmanager
async def asking(*tools: Tool, as_there: bool = False) -> AsyncIterator[Any]:
    async with (
        Host(tools) as host,
        ObservationServer(host, "127.0.0.1:0", insecure=False, as_there=as_there) as server,
        aiohttp.ClientSession() as session,
    ):

        async def ask(action: str, **more: Any) -> Any:
            body = {"trajectory_ids": ["t"], "actions": [action], "extra_fields": [more]}
            url = f"http://127.0.0.1:{server.port}/get_observation"
            async with session.post(url, json=body) as answer:
                assert answer.status == 200
                told = await answer.json()
                return told["observations"][0], told["dones"][0], told["valids"][0]

        ask.host = host  # type: ignore[attr-defined]
        yield ask


async def test_a_tool_that_is_not_called_is_not_opened() -> None:
    async with asking(Python(), Sql()) as ask:
        assert await ask("<python>1</python>") == ("1", False, True)
        error = {"obs": "", "error": "the task names no database"}
        assert await ask("<sql>a</sql>") == (error, True, False)
        assert await ask("<python>2</python>") == ("2", False, True)
    async with asking(Python(), Sql()) as ask:
        assert (await ask("<sql>a</sql>", database="db"))[0].startswith("db: ")
        assert await ask("<python>1</python>", database="db") == ("1", False, True)
        assert len(ask.host.session_ids) == 2
        assert await ask("", finish=True) == ("", True, True)
        assert ask.host.session_ids == []


async def test_an_action_that_calls_nothing_opens_nothing() -> None:
    async with asking(Python(), Sql()) as ask:
        told, done, valid = await ask("words")
        assert (done, valid) == (False, False)
        assert "calls none of the tools" in told["invalid_reason"]
        assert ask.host.session_ids == []


async def test_tools_that_are_not_built_in_keep_what_they_share() -> None:
    async with asking(One(), Python(), Two()) as ask:
        said = [(await ask(f"<{name}>x</{name}>"))[0] for name in ("one", "two", "one")]
        assert said == ["1", "2", "3"]
        assert len(ask.host.session_ids) == 1


async def test_frames_on_the_wire() -> None:
    async with asking(Python(), Sql(), as_there=True) as ask:
        told = await ask("<python>1</python><python>2</python>")
        runs = program("1\n2", "").strip()
        assert told == (f"\n<result>\n{runs}\n</result>\n", False, True)
        told, done, valid = await ask("<sql>a</sql>", database="db", turns_left=2)
        reminder = "<reminder>You have 2 turns left to complete the task.</reminder>"
        assert told["obs"] == f"\n\n<observation>db: <sql>a</sql>\n{reminder}</observation>\n\n"
        assert (told["parsed_sql"], done, valid) == ("a", False, True)
        told, done, valid = await ask("words")
        assert told["invalid_reason"] == "No valid tool found for action"
        assert told["available_tools"].startswith("Available tools:\n• python: Runs Python.")
        assert (done, valid) == (False, False)
