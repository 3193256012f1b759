"""A ToolService in another language keeps the contract: what froze v1."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checking import keeps_the_contract
from tests.support.node_tool import node_tool
from toolsvc.check.checks import ALL
from toolsvc.check.types import Rule

pytestmark = pytest.mark.slow

MAY_SKIP = {
    "calls-go-to-the-endpoint",
    "a-stored-blob-comes-back",
    "a-blob-is-what-its-hash-says",
    "a-blob-comes-as-it-was-named",
    "a-missing-blob-is-named",
    "a-session-holds-its-blobs",
    "blobs-of-observations-can-be-fetched",
    *(
        one.name
        for one in ALL
        if one.rule in (Rule.HELD, Rule.STREAM, Rule.FORK)
        and one.name != "what-does-not-fork-is-not-forked"
    ),
}
"""It has one process and stores no blobs, and came before GetSession, StreamCalls and forks."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with node_tool(tmp_path_factory.mktemp("node") / "errors.log") as address:
        yield address


def test_the_node_service_keeps_the_contract(address: str, tmp_path: Path) -> None:
    found = keeps_the_contract(address, folder=tmp_path)
    assert {one["name"] for one in found["checks"] if one["outcome"] == "skipped"} == MAY_SKIP
