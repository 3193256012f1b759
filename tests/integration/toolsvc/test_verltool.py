"""VerlTool's tool classes and its trainer's requests at a real service."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest

from console.machine.ready import free_ports
from tests.integration.toolsvc.conftest import Service
from tests.support.checking import keeps_the_contract

pytestmark = pytest.mark.quick

TOOLS = Path(__file__).parents[2] / "support" / "verltool"
PROBE = """
[basket]
effect = '{"put": "pear"}'
read = '{}'
sleep = '{"put": "plum", "after": @seconds@}'
fail = '{"drop": 1}'
media = '{"photo": 3}'
"""


@pytest.mark.slow
def test_a_verltool_tool_keeps_the_contract(start: Callable[..., Service], tmp_path: Path) -> None:
    service = start(f"verltool:{TOOLS / 'basket.py'}", "--set", 'verltool.stop=["</tool_call>"]')
    keeps_the_contract(service.address, folder=tmp_path, probes=PROBE)


async def test_a_trainer_calls_tools_of_ours_and_of_its_own(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    (tmp_path / "shout.py").write_text(
        "from toolsvc import tool\n\n"
        "@tool\ndef shout(text: str) -> str:\n    return text.upper()\n",
        encoding="utf-8",
    )
    start(
        f"verltool:{TOOLS / 'word_count.py'}", str(tmp_path / "shout.py"),
        "--verltool-http", f"127.0.0.1:{port}",
    )  # fmt: skip
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.get("/health") as answer:
            told = await answer.json()
        assert (told["status"], told["tools"]) == ("healthy", ["word_count", "shout"])
        body = {
            "trajectory_ids": ["a", "b"],
            "actions": ["<count>one two</count>", "so <shout>hello</shout>"],
            "extra_fields": [{"turns_left": 2}, {}],
        }
        async with session.post("/get_observation", json=body) as answer:
            told = await answer.json()
    assert told["observations"] == ["<result>2 words, 2 turns left</result>", "HELLO"]
    assert (told["dones"], told["valids"]) == ([False, False], [True, True])
    assert told["queue_time_ms"] <= told["processing_time_ms"]


async def test_a_trainer_reads_the_frames_that_it_knows(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    with closing(sqlite3.connect(tmp_path / "films.sqlite")) as database:
        database.execute("CREATE TABLE film AS SELECT 'Lost' AS title, 2003 AS year")
        database.commit()
    start(
        "python", "bash", "sql", "--set", f"sql.databases={tmp_path}", "--set", "sql.key=db_id",
        "--verltool-http", f"127.0.0.1:{port}", "--verltool-frames",
    )  # fmt: skip
    body = {
        "trajectory_ids": list("abcde"),
        "actions": [
            "<python>6*7</python> <python>print(1)</python>",
            "<python>1/0</python>",
            "<bash>cd /tmp</bash> and <bash>pwd</bash>",
            "```bash\necho a\n```",
            "<sql>SELECT year FROM film</sql>",
        ],
        "extra_fields": [{}, {}, {}, {}, {"db_id": "films", "turns_left": 1}],
    }
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.post("/get_observation", json=body) as answer,
    ):
        told = await answer.json()
    right, wrong, blocks, fence, rows = told["observations"]
    assert right == "\n<result>\n1\n</result>\n"
    assert wrong.startswith("\n<result>\nTraceback (most recent call last):\n")
    assert blocks == "\n<o>\n/tmp\n</o>\n"
    assert fence == "\n```output\na\n```\n"
    reminder = "<reminder>You have 1 turns left to complete the task.</reminder></observation>\n\n"
    assert rows["obs"] == f"\n\n<observation>year\n2003\n(1 row)\n{reminder}"
    assert (told["dones"], told["valids"]) == ([False] * 5, [True] * 5)
