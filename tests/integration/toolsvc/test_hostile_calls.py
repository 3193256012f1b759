"""Whatever a policy writes to a built-in tool is answered: never refused, never an error of the
service, which would end the trajectory and give the policy another one.

Arguments are drawn by each tool's own schema, as its descriptor tells it: a new tool is asked as
soon as `SETTINGS` says with what it is served.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.support.chat_endpoint import chat_endpoint
from tests.support.pictures import png
from tests.support.repository import make_repository
from tests.support.trajectory import Trajectory
from tests.support.web import search_server
from toolsvc.backends.search.build import Order, build
from toolsvc.backends.search.manifest import IndexKind
from toolsvc.host.host import Host
from toolsvc.plugin.registry import TOOLS, make_registered, registered
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.types import Descriptor, Result
from toolwright.types import ToolErrorKind

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

SMALL = SandboxConfig(shards=1, ready=2, memory_bytes=192 * MIB)
LIMIT = 5.0
HOSTILE: tuple[Any, ...] = (
    *("", " ", "\0", "a\0b", "\ud800", "\udfff x", "\u202e", "\x1b[2J", "%s%n{0}", "\\", "'", '"'),
    *("..", "../../../etc/passwd", "/", "/dev/zero", "/proc/self/mem", "a/" * 3000),
    *("-rf", "--help", "$(id)", "`id`", "; true", "'; --", "<tool_call>", "</bash>"),
    *("http://", "http://[", "http://a:99999999/", "http://\u2028", "file:///etc/passwd"),
    *("x" * 100_000, "x" * (1 << 20), "\u00e9" * 70_000, "\n" * 200_000, "9" * 5000, "1e400"),
    *("[" * 3000, '{"a":' * 100, "about:blank", True, False, None, [], {}, [None], [""]),
    *(0, -1, 1 << 31, 1 << 63, -(1 << 64), 10**400, 0.5, -0.0, 5e-324, 1.7e308),
    *(float("nan"), float("inf"), float("-inf"), [1, 1e308, -1e308, 0], [0] * 5000),
    *([[[[[[]]]]]], {"\0": {"\ud800": []}}, [{}] * 5, ["a", 1, None, {}]),
)


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


hostile = st.sampled_from(HOSTILE) | st.integers(26, 900).map(deep) | st.text(max_size=20)


def fitting(schema: Any) -> st.SearchStrategy[Any]:
    """Values that the schema takes, or nearly so: past them the tool itself has to stand."""
    if not isinstance(schema, Mapping):
        return hostile
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return st.one_of([fitting(one) for one in schema[several]])
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "string": st.sampled_from([one for one in HOSTILE if isinstance(one, str)]),
        "integer": st.sampled_from([-1, 0, 1, 2, 10**6, 1 << 63]),
        "number": st.sampled_from([-1e308, -1, 0, 0.5, 1e308, 5e-324]),
        "boolean": st.booleans(),
        "array": st.lists(fitting(schema.get("items")), max_size=5),
        "object": st.dictionaries(st.text(max_size=3), hostile, max_size=3),
        "null": st.none(),
    }
    return kinds.get(str(schema.get("type")), hostile)


def arguments(schema: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Of the names that the schema has and, now and then, of others."""
    properties = schema.get("properties", {})
    drawn = {
        name: fitting(one) | fitting(one) | hostile for name, one in sorted(properties.items())
    }
    required = {name: drawn.pop(name) for name in schema.get("required", ())}
    known = st.fixed_dictionaries(required, optional=drawn)
    return known | known | st.dictionaries(st.sampled_from([*properties, "", "\0"]), hostile)


@dataclass
class Served:
    """One tool, and the trajectory that goes on until its session is lost or done."""

    host: Host
    metadata: Mapping[str, Any] = field(default_factory=dict)
    media: Callable[[], list[Any]] = list
    trajectory: Trajectory | None = None

    @property
    def descriptor(self) -> Descriptor:
        (found,) = self.host.list_tools()
        return found

    async def act(self, action: str, given_: Mapping[str, Any] | None) -> Result:
        """Refused, or TimeoutError, where it is not answered."""
        if self.trajectory is None:
            name = self.descriptor.name
            self.trajectory = Trajectory(self.host, name, self.metadata, self.media())
        async with asyncio.timeout(60):
            result = await self.trajectory.act(action, arguments=given_, run_limit=LIMIT)
        if result.done or (result.error is not None and result.error.session_lost):
            await self.trajectory.close()
            self.trajectory = None
        return result


def picture() -> list[Any]:
    return [png(Image.new("RGB", (40, 20), "red"))]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mapping[str, Served]]:
    folder = tmp_path_factory.mktemp("hostile")
    with sqlite3.connect(folder / "a.sqlite") as database:
        database.execute("CREATE TABLE a (b)")
    corpus = folder / "corpus.jsonl"
    corpus.write_text(
        json.dumps({"id": 0, "contents": '"Apple"\nApples may be red.'}) + "\n", encoding="utf-8"
    )
    await asyncio.to_thread(
        build, Order(corpus=corpus, folder=folder / "index", kind=IndexKind.BM25)
    )
    (folder / "references.jsonl").write_text(
        json.dumps({"question": "?", "answer": ["!"]}), encoding="utf-8"
    )
    make_repository(folder / "repository")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        endpoint = await enter(chat_endpoint(lambda _: "0"))
        api = await enter(search_server())
        chat = {"endpoint": endpoint.url, "model": "m", "retries": 0}
        given_: dict[str, dict[str, Any]] = {
            "python": {},
            "bash": {},
            "sql": {"databases": folder / "a.sqlite", "writable": True},
            "search": {"index": folder / "index"},
            "web_search": {"base_url": api.url, "key_variable": "", "visit": True},
            "finish": {},
            "judge": {**chat, "references": folder / "references.jsonl"},
            "browser": {"allow": ["a.invalid"], "navigation_seconds": 1},
            "swe": {"repositories": folder / "repository"},
            "image": {},
            "create_and_execute": {},
        }
        assert set(given_) == set(registered(TOOLS))
        tools = {name: make_registered(name, one, SMALL) for name, one in given_.items()}
        more: dict[str, dict[str, Any]] = {
            "image": {"media": picture},
            "judge": {"metadata": {"question": "?"}},
        }
        yield {
            name: Served(await enter(Host([tool])), **more.get(name, {}))
            for name, tool in tools.items()
        }


@pytest.mark.parametrize("name", registered(TOOLS))
async def test_every_call_is_answered(served: Mapping[str, Served], name: str) -> None:
    """As data, as JSON text in an action, and between the tool's tags."""
    one = served[name]
    calls: list[tuple[str, dict[str, Any] | None]] = [
        (f"<{name}>{value}</{name}>", None) for value in HOSTILE if isinstance(value, str)
    ]

    @settings(max_examples=25, deadline=None, database=None, derandomize=True)
    @given(arguments(one.descriptor.arguments_schema), st.booleans())
    def draw(values: dict[str, Any], as_text: bool) -> None:
        text = json.dumps({"name": name, "arguments": values})
        calls.append((f"<tool_call>{text}</tool_call>", None) if as_text else ("", values))

    draw()
    for action, values in calls:
        result = await one.act(action, values)
        assert result.valid or result.invalid_reason
        if result.error is not None:
            assert result.error.kind in set(ToolErrorKind) - {ToolErrorKind.NONE}
            assert result.error.message
