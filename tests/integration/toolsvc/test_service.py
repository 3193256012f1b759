"""The whole service: a real process, real gRPC, real jails."""

import asyncio
import contextlib
import os
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

SMALL = ("--ready", "2", "--shards", "1")
PLUGIN = '''
import threading, time
from toolsvc import Media, Result, Text, Tool, tool

calls = 0
release = threading.Event()

@tool
def count(text: str) -> str:
    """Counts its calls."""
    global calls
    time.sleep(float(text or 0))
    calls += 1
    return str(calls)

@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b

@tool(media=True)
def picture(size: int):
    """An image of so many bytes, and everything else that an answer may hold."""
    return Result(
        observation=(Text(text="see"), Media(media_type="image/png", data=b"x" * size)),
        done=True, reward=-0.5, metrics={"seen": 2.0},
    )

@tool
def long(count: int) -> str:
    """Much text."""
    return "a" * count + "\\x00b" * count

class Crash(Tool):
    name = "crash"
    def call(self, state, call):
        raise RuntimeError("this plugin is broken")

class Notes(Tool):
    name = "notes"
    stateful = True
    async def open(self, session):
        return [session.metadata.get("first", "")]
    async def call(self, state, call):
        state.append(call.arguments["text"])
        return ",".join(state)
'''


def seconds(value: float) -> Duration:
    return Duration(seconds=int(value), nanos=int(value % 1 * 1e9))


class Client:
    """What these tests say to a service."""

    def __init__(self, address: str) -> None:
        self.channel = open_channel(address)
        self.stub: Any = tool_pb2_grpc.ToolServiceStub(self.channel)

    async def open(self, **fields: Any) -> str:
        request = pb.OpenSessionRequest(
            **{
                "session_id": f"s-{uuid.uuid4().hex}",
                "owner": "tests",
                "lease": seconds(60),
                **fields,
            }
        )
        opened = await rpc(self.stub.OpenSession, request, timeout=30)
        assert opened.session_id == request.session_id
        return request.session_id

    async def call(self, session: str, action: str, call_id: str = "", **fields: Any) -> Any:
        request = pb.CallToolRequest(
            session_id=session, call_id=call_id or uuid.uuid4().hex, action=action, **fields
        )
        return await rpc(self.stub.CallTool, request, timeout=40)

    async def python(self, session: str, code: str, call_id: str = "", **fields: Any) -> Any:
        answer = await self.call(session, f"<python> {code}</python>", call_id, **fields)
        assert answer.HasField("result"), answer
        return answer.result

    async def text(self, session: str, code: str) -> str:
        result = await self.python(session, code)
        assert not result.HasField("error"), result
        return result.observation[0].text


@pytest.fixture
async def client(service: Any) -> AsyncIterator[Client]:
    one = Client(service.address)
    yield one
    await one.channel.close()


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[str], Client]]:
    clients: list[Client] = []

    def connect_one(address: str) -> Client:
        clients.append(Client(address))
        return clients[-1]

    yield connect_one
    for one in clients:
        await one.channel.close()


@contextlib.contextmanager
def refused(reason: int) -> Iterator[Any]:
    with pytest.raises(ServiceError) as failure:
        yield failure
    assert failure.value.reason == reason, failure.value


async def test_the_tool_describes_itself(client: Client) -> None:
    listed = await rpc(client.stub.ListTools, pb.ListToolsRequest(), timeout=10)
    (tool,) = listed.tools
    assert tool.name == "python"
    assert list(tool.stop_strings) == ["</python>"]
    assert tool.action_format.tag.open == "<python>"
    assert tool.stateful
    assert not tool.parallel_calls
    assert listed.service.startswith("toolsvc ")


async def test_a_session_keeps_its_variables_and_its_isolation_is_stamped(client: Client) -> None:
    session = await client.open()
    assert await client.text(session, "x = 6\nx * 7") == "42"
    result = await client.python(session, "print(x)   ", tool="python")
    assert result.observation[0].text == "6"
    assert result.valid
    assert result.tool == "python"
    assert result.isolation in ("full", "compat", "per-session")
    assert result.run.nanos > 0
    other = await client.open()
    assert "NameError" in (await client.python(other, "x")).observation[0].text


async def test_an_exception_is_a_tool_error_that_the_policy_reads(client: Client) -> None:
    session = await client.open()
    result = await client.python(session, "1 / 0")
    assert result.valid
    assert result.error.kind == reasons.TOOL_ERROR_KIND_EXCEPTION
    assert result.error.message == "ZeroDivisionError: division by zero"
    assert result.observation[0].text.startswith("Traceback")
    assert not result.error.session_lost


async def test_an_action_without_code_is_invalid(client: Client) -> None:
    session = await client.open()
    answer = await client.call(session, "I do not know.")
    assert not answer.result.valid
    assert answer.result.error.kind == reasons.TOOL_ERROR_KIND_INVALID_ACTION


async def test_the_run_limit_is_a_tool_error_and_keeps_the_state(client: Client) -> None:
    session = await client.open()
    await client.text(session, "x = 1")
    result = await client.python(session, "while True: pass", run_limit=seconds(0.3))
    assert result.error.kind == reasons.TOOL_ERROR_KIND_TIMEOUT
    assert "0.3 s" in result.observation[0].text
    assert not result.error.session_lost
    assert await client.text(session, "x") == "1"


async def test_a_lost_session_is_said_to_be_lost_and_stays_lost(client: Client) -> None:
    session = await client.open()
    result = await client.python(session, "import os; os._exit(1)", "dies")
    assert result.error.kind == reasons.TOOL_ERROR_KIND_CRASHED
    assert result.error.session_lost
    with refused(reasons.ERROR_REASON_SESSION_LOST):
        await client.python(session, "1")
    again = await client.python(session, "import os; os._exit(1)", "dies")
    assert again == result
    renewed = await rpc(
        client.stub.RenewLeases,
        pb.RenewLeasesRequest(owner="tests", session_ids=[session]),
        timeout=10,
    )
    assert list(renewed.lost) == [session]


async def test_memory_is_a_tool_error(client: Client) -> None:
    session = await client.open()
    result = await client.python(session, "bytearray(1 << 30)")
    assert result.error.kind == reasons.TOOL_ERROR_KIND_OUT_OF_MEMORY
    assert not result.error.session_lost


async def test_a_call_id_runs_once(client: Client) -> None:
    session = await client.open()
    await client.text(session, "n = 0")
    code = "import time; time.sleep(0.2); n += 1; n"
    answers = await asyncio.gather(*(client.python(session, code, "once") for _ in range(4)))
    assert {answer.observation[0].text for answer in answers} == {"1"}
    assert (await client.python(session, code, "once")) == answers[0]
    assert await client.text(session, "n") == "1"
    with refused(reasons.ERROR_REASON_CALL_ID_REUSED):
        await client.python(session, "n + 5", "once")
    await client.python(session, "n", "later", turn=1)
    with refused(reasons.ERROR_REASON_RESULT_FORGOTTEN):
        await client.python(session, code, "once")
    assert (await client.python(session, "n", turn=1)).observation[0].text == "1"


async def test_a_cut_rpc_does_not_cut_the_call(client: Client) -> None:
    session = await client.open()
    request = pb.CallToolRequest(
        session_id=session,
        call_id="cut",
        action="<python>import time; time.sleep(0.5); n = globals().get('n', 0) + 1; n</python>",
    )
    with pytest.raises(TransportError) as failure:
        await rpc(client.stub.CallTool, request, timeout=0.1)
    assert failure.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
    answer = await rpc(client.stub.CallTool, request, timeout=20)
    assert answer.result.observation[0].text == "1"


async def test_a_long_call_answers_running(client: Client) -> None:
    session = await client.open()
    fields: dict[str, Any] = {"call_id": "long", "wait": seconds(0.1)}
    action = "<python>import time; time.sleep(0.5); 'done'</python>"
    answer = await client.call(session, action, **fields)
    assert answer.HasField("running")
    answer = await client.call(session, action, call_id="long")
    assert answer.result.observation[0].text == "'done'"


async def test_cancelling_a_call_keeps_the_state(client: Client) -> None:
    session = await client.open()
    await client.text(session, "x = 1")
    call = asyncio.create_task(client.python(session, "while True: pass", "loop"))
    await asyncio.sleep(0.3)
    cancel = pb.CancelCallRequest(session_id=session, call_id="loop")
    assert (await rpc(client.stub.CancelCall, cancel, timeout=10)).cancelled
    assert (await call).error.kind == reasons.TOOL_ERROR_KIND_CANCELLED
    assert not (await rpc(client.stub.CancelCall, cancel, timeout=10)).cancelled
    assert await client.text(session, "x") == "1"


async def test_queue_and_run_limits_are_two_things(client: Client) -> None:
    session = await client.open()
    first = asyncio.create_task(client.python(session, "import time; time.sleep(0.6)"))
    await asyncio.sleep(0.2)
    with refused(reasons.ERROR_REASON_QUEUE_LIMIT) as failure:
        await client.python(session, "1", "second", queue_limit=seconds(0.1))
    assert failure.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert failure.value.retry_after is not None
    result = await client.python(session, "1", "second", run_limit=seconds(0.3))
    assert result.observation[0].text == "1"
    assert result.queued.ToTimedelta().total_seconds() > 0.1
    assert result.run.ToTimedelta().total_seconds() < 0.3
    await first


async def test_closing_is_idempotent_and_final(client: Client) -> None:
    session = await client.open()
    running = asyncio.create_task(client.python(session, "while True: pass"))
    await asyncio.sleep(0.2)
    close = pb.CloseSessionRequest(session_id=session)
    assert (await rpc(client.stub.CloseSession, close, timeout=10)).closed
    with refused(reasons.ERROR_REASON_SESSION_CLOSED):
        await running
    assert not (await rpc(client.stub.CloseSession, close, timeout=10)).closed
    with refused(reasons.ERROR_REASON_SESSION_CLOSED):
        await client.python(session, "1")
    with refused(reasons.ERROR_REASON_SESSION_NOT_FOUND):
        await client.python("never opened", "1")


async def test_a_lease_that_runs_out_ends_the_session(client: Client) -> None:
    short = await client.open(owner="careless", lease=seconds(0.5))
    kept = await client.open(owner="careful", lease=seconds(0.5))
    await client.text(short, "1")
    renew = pb.RenewLeasesRequest(owner="careful", lease=seconds(60))
    renewed = await rpc(client.stub.RenewLeases, renew, timeout=10)
    assert list(renewed.held) == [kept]
    await asyncio.sleep(2.2)
    with refused(reasons.ERROR_REASON_SESSION_CLOSED):
        await client.python(short, "1")
    assert await client.text(kept, "1") == "1"


async def test_what_is_not_served_says_so(client: Client) -> None:
    for method, request in (
        ("SnapshotSession", pb.SnapshotSessionRequest()),
        ("RestoreSession", pb.RestoreSessionRequest()),
        ("ForkSession", pb.ForkSessionRequest()),
    ):
        with refused(reasons.ERROR_REASON_NOT_SERVED) as failure:
            await rpc(getattr(client.stub, method), request, timeout=10)
        assert failure.value.code is grpc.StatusCode.UNIMPLEMENTED


async def test_health_and_reflection(client: Client) -> None:
    health: Any = health_pb2_grpc.HealthStub(client.channel)
    answer = await health.Check(
        health_pb2.HealthCheckRequest(service="toolwright.tool.v1.ToolService"), timeout=10
    )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    reflection: Any = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    names = set()
    async for response in reflection.ServerReflectionInfo(iter([ask]), timeout=10):
        names = {service.name for service in response.list_services_response.service}
    assert "toolwright.tool.v1.ToolService" in names


async def test_many_sessions_at_once(client: Client) -> None:
    sessions = await asyncio.gather(*(client.open() for _ in range(96)))
    answers = await asyncio.gather(
        *(client.text(session, f"print({i})") for i, session in enumerate(sessions))
    )
    assert answers == [str(i) for i in range(96)]
    await asyncio.gather(
        *(
            rpc(client.stub.CloseSession, pb.CloseSessionRequest(session_id=session), timeout=20)
            for session in sessions
        )
    )


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    path = tmp_path / "my_tools.py"
    path.write_text(PLUGIN)
    return str(path)


async def test_a_plugin_file(start: Any, connect: Callable[[str], Client], plugin: str) -> None:
    client = connect(start(plugin).address)
    listed = await rpc(client.stub.ListTools, pb.ListToolsRequest(), timeout=10)
    assert [tool.name for tool in listed.tools] == [
        "count",
        "add",
        "picture",
        "long",
        "crash",
        "notes",
    ]
    session = await client.open(metadata={"first": "a"})
    answer = await client.call(session, "<notes>b</notes>")
    assert answer.result.observation[0].text == "a,b"
    assert answer.result.isolation == ""
    add = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
    assert (await client.call(session, add)).result.observation[0].text == "3"
    wrong = '<tool_call>{"name": "add", "arguments": {"a": "x", "b": 2}}</tool_call>'
    assert not (await client.call(session, wrong)).result.valid
    crash = (await client.call(session, "<crash>x</crash>")).result
    assert crash.error.kind == reasons.TOOL_ERROR_KIND_EXCEPTION
    assert "this plugin is broken" in crash.observation[0].text
    late = (await client.call(session, "<count>2</count>", run_limit=seconds(0.2))).result
    assert late.error.kind == reasons.TOOL_ERROR_KIND_TIMEOUT
    answer = await client.call(session, "<nothing>x</nothing>")
    assert not answer.result.valid
    with refused(reasons.ERROR_REASON_UNKNOWN_TOOL):
        await client.call(session, "x", tool="nothing")


async def test_what_a_tool_may_answer_arrives(
    start: Any, connect: Callable[[str], Client], plugin: str
) -> None:
    client = connect(start(plugin).address)
    listed = await rpc(client.stub.ListTools, pb.ListToolsRequest(), timeout=10)
    media = {tool.name: tool.capabilities.media for tool in listed.tools}
    assert media["picture"]
    assert not media["add"]
    session = await client.open()
    small = (await client.call(session, "<picture>5</picture>")).result
    assert (small.observation[0].text, small.observation[1].media.data) == ("see", b"xxxxx")
    assert (small.done, small.reward, dict(small.metrics)) == (True, -0.5, {"seen": 2.0})
    size = (2 << 20) + 3
    large = (await client.call(session, f"<picture>{size}</picture>")).result
    blob = large.observation[1].blob
    assert (blob.size, blob.media_type) == (size, "image/png")
    pieces = [
        piece.data
        async for piece in client.stub.GetBlob(
            pb.GetBlobRequest(sha256=blob.sha256, offset=1), timeout=20
        )
    ]
    assert b"".join(pieces) == b"x" * (size - 1)
    assert max(map(len, pieces)) == 1 << 20
    await rpc(client.stub.CloseSession, pb.CloseSessionRequest(session_id=session), timeout=10)
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        async for _ in client.stub.GetBlob(pb.GetBlobRequest(sha256=blob.sha256), timeout=10):
            pass
    assert gone.value.code() is grpc.StatusCode.NOT_FOUND


async def test_long_observations_are_cut_by_the_service(
    start: Any, connect: Callable[[str], Client], plugin: str
) -> None:
    client = connect(start(plugin, "--observation-chars", "1000").address)
    session = await client.open()
    result = (await client.call(session, "<long>5000</long>")).result
    text = result.observation[0].text
    assert result.truncated
    assert len(text) <= 1000
    assert (text[0], text[-1]) == ("a", "b")
    assert "\x00" not in text
    assert not (await client.call(session, "<long>10</long>")).result.truncated


async def test_a_plugin_that_never_returns_does_not_keep_the_service(
    start: Any, connect: Callable[[str], Client], plugin: str
) -> None:
    service = start(plugin)
    client = connect(service.address)
    session = await client.open()
    late = (await client.call(session, "<count>60</count>", run_limit=seconds(0.1))).result
    assert late.error.kind == reasons.TOOL_ERROR_KIND_TIMEOUT
    service.process.terminate()
    assert await asyncio.to_thread(service.process.wait, 20) == 0


async def test_sigterm_lets_a_call_end_and_leaves_no_process(
    start: Any, connect: Callable[[str], Client]
) -> None:
    service = start("python", *SMALL)
    client = connect(service.address)
    session = await client.open()
    below = psutil.Process(service.process.pid).children(recursive=True)
    assert below
    call = asyncio.create_task(client.python(session, "import time; time.sleep(1.0); 'finished'"))
    await asyncio.sleep(0.4)
    service.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.2)
    with pytest.raises((ServiceError, TransportError)):
        await client.python(session, "1")
    assert (await call).observation[0].text == "'finished'"
    assert await asyncio.to_thread(service.process.wait, 20) == 0
    assert not psutil.wait_procs(below, timeout=5)[1]


async def test_a_lost_jail_is_never_an_observation(
    start: Any, connect: Callable[[str], Client]
) -> None:
    service = start("python", *SMALL)
    client = connect(service.address)
    session = await client.open()
    call = asyncio.create_task(client.python(session, "while True: pass"))
    await asyncio.sleep(0.5)
    for process in psutil.Process(service.process.pid).children(recursive=True):
        if process.name().startswith("python"):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    with refused(reasons.ERROR_REASON_SESSION_LOST):
        await call
    with refused(reasons.ERROR_REASON_SESSION_LOST):
        await client.python(session, "1")
    async with asyncio.timeout(30):
        while True:
            try:
                assert await client.text(await client.open(), "6 * 7") == "42"
                break
            except ServiceError as error:
                assert error.reason == reasons.ERROR_REASON_SESSION_LOST


async def test_kill_9_leaves_no_process(start: Any, connect: Callable[[str], Client]) -> None:
    service = start("python", *SMALL)
    client = connect(service.address)
    session = await client.open()
    code = "import os\nif os.fork() == 0:\n    os.setsid()\nwhile True: pass"
    call = asyncio.create_task(client.python(session, code))
    await asyncio.sleep(0.5)
    below = psutil.Process(service.process.pid).children(recursive=True)
    assert len(below) >= 5
    service.process.send_signal(signal.SIGKILL)
    with pytest.raises((ServiceError, TransportError)):
        await call
    assert not psutil.wait_procs(below, timeout=10)[1]


@pytest.fixture
def fails(serve_fails: Callable[..., str]) -> Callable[..., str]:
    def run(*arguments: str, **environment: str) -> str:
        return serve_fails(*arguments, environment={**os.environ, **environment})

    return run


def test_a_port_in_use_is_one_sentence(fails: Callable[..., str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        began = time.monotonic()
        line = fails("python", *SMALL, "--listen", address)
    assert address in line
    assert "in use" in line
    assert time.monotonic() - began < 30


def test_a_missing_firejail_is_one_sentence(fails: Callable[..., str]) -> None:
    line = fails("python", "--listen", "127.0.0.1:0", PATH="/nowhere")
    assert "firejail" in line
    assert "apt-get install firejail" in line


def test_an_address_off_loopback_needs_a_token(fails: Callable[..., str], plugin: str) -> None:
    line = fails(plugin, "--listen", "0.0.0.0:0", TOOLWRIGHT_TOKEN="")
    assert "TOOLWRIGHT_TOKEN" in line


@pytest.mark.parametrize(
    ("text", "says"),
    [("import nothing_like_it", "nothing_like_it"), ("x = 1", "defines no tool")],
)
def test_a_broken_plugin_is_one_sentence(
    fails: Callable[..., str], tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    line = fails(str(path), "--listen", "127.0.0.1:0")
    assert says in line
    assert "broken.py" in line


def test_an_unknown_tool_is_one_sentence(fails: Callable[..., str]) -> None:
    assert "'pyton'" in fails("pyton", "--listen", "127.0.0.1:0")
