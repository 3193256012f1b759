"""What is recorded is replayed, and nothing else."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hosts import calling, opening, refused
from toolsvc import Media, Tool, ToolFailed
from toolsvc.errors import Reason, StartError
from toolsvc.host.host import Host
from toolsvc.sources.cassette.player import CassettePlayer, CassetteTool
from toolsvc.sources.cassette.recorder import Recorder, RecordingTool
from toolsvc.sources.cassette.tape import next_key, read, task_key
from toolsvc.sources.remote.wire import descriptor_from_proto
from toolsvc.types import Call, Recorded, Result, SessionInfo, ToolError
from toolwright.types import Author, ToolErrorKind


class Note(Tool):
    """Answers otherwise in every session of a process's life."""

    name = "counter"
    stateful = True
    media = True

    def __init__(self) -> None:
        self.sessions = 0
        self.calls = 0

    async def open(self, session: SessionInfo) -> list[str]:
        self.sessions += 1
        return [f"session {self.sessions}"]

    async def call(self, state: list[str], call: Call) -> Any:
        self.calls += 1
        text = call.arguments["text"]
        if text == "fail":
            raise ToolFailed("as told")
        if text == "lose":
            return Result(
                error=ToolError(kind=ToolErrorKind.CRASHED, message="gone", session_lost=True)
            )
        state.append(text)
        if text == "media":
            image = Media(media_type="image/png", data=bytes(range(256)) * 2000)
            more: dict[str, Any] = {"author": Author.MEMORY, "token_budget": 70}
            return Result.of("see", image, done=True, reward=0.25, metrics={"n": 1.5}, **more)
        return "\n".join(state)


class Maker(Note):
    """Makes a tool of the name that it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.own: dict[str, Tool] = {}

    async def call(self, state: list[str], call: Call) -> Any:
        name = call.arguments["text"]
        self.own[name] = type(name, (Note,), {"name": name})()
        return "made"

    def session_tools(self, state: list[str]) -> Sequence[Tool]:
        return list(self.own.values())


@asynccontextmanager
async def recording(path: Path, tool: Tool) -> AsyncIterator[Host]:
    async with Host([RecordingTool(Recorder(path, [tool]), tool)]) as host:
        yield host


@asynccontextmanager
async def replaying(path: Path) -> AsyncIterator[Host]:
    player = CassettePlayer(read(path), path.name)
    tools = [CassetteTool(player, descriptor_from_proto(tool)) for tool in player.tape.tools]
    async with Host(tools) as host:
        yield host


async def answers(host: Host, session: str, texts: Sequence[str], **metadata: Any) -> list[Result]:
    """Of one session, which is closed again."""
    await host.open(opening(session, metadata=metadata))
    found = []
    for turn, text in enumerate(texts):
        request = calling(
            f"{session}/{turn}", session=session, turn=turn, arguments={"text": text}, tool=""
        )
        recorded = await host.call(request)
        assert isinstance(recorded, Recorded)
        if isinstance(recorded.result.observation, tuple):
            found.append(recorded.result)
    await host.close(session)
    return found


async def test_a_replay_answers_as_the_real_tool_did_and_the_tool_is_not_there(
    tmp_path: Path,
) -> None:
    path, said = tmp_path / "c.jsonl", ["one", "fail", "media"]
    async with recording(path, Note()) as host:
        listed = host.list_tools()
        real = await answers(host, "a", said, task=1)
    async with replaying(path) as host:
        assert host.list_tools() == listed
        assert await answers(host, "another-id", said, task=1) == real
        assert await answers(host, "again", said, task=1) == real
    assert real[1].error is not None
    assert (real[2].done, real[2].reward, real[2].metrics) == (True, 0.25, {"n": 1.5})


@pytest.mark.parametrize(
    ("said", "metadata"),
    [
        (["one", "three"], {"task": 1}),  # never said after "one"
        (["two"], {"task": 1}),  # said, but not at first
        (["one"], {"task": 2}),  # in another task
    ],
)
async def test_what_was_not_recorded_is_refused_by_its_key(
    tmp_path: Path, said: list[str], metadata: Mapping[str, Any]
) -> None:
    path = tmp_path / "c.jsonl"
    async with recording(path, Note()) as host:
        await answers(host, "a", ["one", "two"], task=1)
    key = task_key(metadata)
    for text in said:
        key = next_key(key, "counter", {"text": text})
    async with replaying(path) as host:
        with refused(Reason.INVALID_REQUEST) as failure:
            await answers(host, "b", said, **metadata)
    assert key[:16] in failure.value.message
    assert said[-1] in failure.value.message
    if metadata["task"] == 1:
        assert ("two" if len(said) == 2 else "one") in failure.value.message.partition(":")[2]


async def test_sessions_of_one_task_take_its_recorded_sessions_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    async with recording(path, Note()) as host:
        real = [await answers(host, name, ["one"], task=1) for name in ("a", "b")]
    assert real[0] != real[1]
    async with replaying(path) as host:
        again = [await answers(host, name, ["one"], task=1) for name in ("c", "d", "e")]
    assert again == [*real, real[0]]


async def test_an_action_that_cannot_be_read_has_the_real_tool_s_answer(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    async with recording(path, Note()) as host:
        await host.open(opening())
        bad = calling("a", arguments=None, action="no tag at all")
        real = await host.call(bad)
    async with replaying(path) as host:
        await host.open(opening())
        again = await host.call(bad)
    assert again.result == real.result
    assert not again.result.valid


async def test_a_policy_that_ended_its_session_is_told_so_again(tmp_path: Path) -> None:
    """Also in calls that were not recorded: it is not given another attempt."""
    path = tmp_path / "c.jsonl"
    async with recording(path, Note()) as host:
        real = await answers(host, "a", ["first", "lose", "after"])
    async with replaying(path) as host:
        assert await answers(host, "a", ["first", "lose", "after", "beyond"]) == [*real, real[1]]
        await host.open(opening("b"))
        await host.call(calling("1", session="b", arguments={"text": "first"}))
        await host.call(calling("2", session="b", arguments={"text": "lose"}))
        assert host.renew("o", 60, ["b"]).lost == ()
        with refused(Reason.INVALID_REQUEST):
            await host.open(opening("c"))
            await host.call(calling("1", session="c", arguments={"text": "beyond"}))


async def test_a_call_that_was_cancelled_has_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    async with recording(path, Note()) as host:
        await answers(host, "a", ["one"])
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text(
        "\n".join(lines).partition('"result"')[0] + '"result": null}\n', encoding="utf-8"
    )
    async with replaying(path) as host:
        with refused(Reason.INVALID_REQUEST) as failure:
            await answers(host, "a", ["one"])
    assert "cancelled" in failure.value.message


async def test_tools_that_came_into_being_come_again(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    make = calling("a", arguments={"text": "own"})
    use = calling("b", tool="own", turn=1, arguments={"text": "hello"})

    async def made_and_used(host: Host) -> tuple[Any, Any]:
        await host.open(opening())
        made, used = await host.call(make), await host.call(use)
        assert isinstance(made, Recorded)
        assert isinstance(used, Recorded)
        assert [tool.name for tool in made.new_tools] == ["own"]
        return made.new_tools, used.result

    async with recording(path, Maker()) as host:
        real = await made_and_used(host)
    async with replaying(path) as host:
        assert await made_and_used(host) == real


async def test_no_recording_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(StartError, match="is there already"):
        async with recording(path, Note()):
            pass
    assert path.read_text(encoding="utf-8") == "mine"


async def test_a_file_is_recorded_by_one_and_left_by_a_recorder_without_sessions(
    tmp_path: Path,
) -> None:
    """`engine check --connect` starts a recorder, and ends it, before that of the run."""
    path = tmp_path / "c.jsonl"
    async with recording(path, Note()):
        pass
    async with recording(path, Note()) as host:
        with pytest.raises(StartError, match="is being recorded: name another file"):
            async with recording(path, Note()):
                pass
        real = await answers(host, "a", ["one"])
    async with replaying(path) as host:
        assert await answers(host, "b", ["one"]) == real


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "c.jsonl:1 is no line"),
        ('{"cassette": 2, "tools": []}\n', "version, 1"),
        ('{"cassette": 1, "tools": []}\n{"session": 0, "ca', "c.jsonl:2 is no line"),
        ('{"cassette": 1, "tools": []}\n{"session": 0, "call": 0}\n', "c.jsonl:2 is no line"),
    ],
)
def test_a_file_that_is_no_cassette_is_named_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "c.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(StartError, match=message):
        read(tmp_path / "c.jsonl")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_a_key_does_not_see_the_order_of_arguments_or_how_a_whole_number_came(
    arguments: dict[str, Any],
) -> None:
    turned = {name: _as_float(arguments[name]) for name in reversed(arguments)}
    assert next_key("k", "t", turned) == next_key("k", "t", arguments)
    assert next_key("k", "t", {**arguments, "more": 1}) != next_key("k", "t", arguments)


def _as_float(value: Any) -> Any:
    return float(value) if type(value) is int else value
