"""What is counted, and pages of several workers on one."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tests.support.hosts import calling, hosting
from toolsvc import Tool
from toolsvc.edge.metrics import Metrics, merge, page_of
from toolsvc.edge.metrics_server import MetricsServer
from toolsvc.errors import Reason
from toolsvc.types import Recorded, Result, ToolError
from toolwright.rpc.errors import ListenError
from toolwright.types import ToolErrorKind


def recorded(tool: str, error: ToolErrorKind | None = None, run: float = 0.02) -> Recorded:
    failure = None if error is None else ToolError(kind=error, message="m")
    return Recorded(result=Result(error=failure), tool=tool, queued=0.0, run=run, isolation="")


class Named(Tool):
    def __init__(self, name: str) -> None:
        self.name = name


SERVED = (Named("a"), Named("b"))


def page(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def test_calls_are_counted_by_tool_and_outcome() -> None:
    metrics = Metrics(SERVED)
    for one in (recorded("a"), recorded("a"), recorded("a", ToolErrorKind.TIMEOUT), recorded("b")):
        metrics.call_recorded(one)
    metrics.call_refused(Reason.QUEUE_LIMIT)
    metrics.lease_ended()
    lines = page(metrics.registry).splitlines()
    assert 'toolwright_toolsvc_calls_total{outcome="ok",tool="a"} 2.0' in lines
    assert 'toolwright_toolsvc_calls_total{outcome="timeout",tool="a"} 1.0' in lines
    assert 'toolwright_toolsvc_calls_total{outcome="ok",tool="b"} 1.0' in lines
    assert 'toolwright_toolsvc_calls_refused_total{reason="queue_limit"} 1.0' in lines
    assert "toolwright_toolsvc_leases_ended_total 1.0" in lines
    assert 'toolwright_toolsvc_run_seconds_bucket{le="0.01",tool="a"} 0.0' in lines
    assert 'toolwright_toolsvc_run_seconds_bucket{le="0.03",tool="a"} 3.0' in lines
    assert 'toolwright_toolsvc_queue_seconds_count{tool="b"} 1.0' in lines


def test_names_that_policies_choose_are_no_labels() -> None:
    metrics = Metrics(SERVED)
    for number in range(100):
        metrics.call_recorded(recorded(f"made_{number}"))
    lines = page(metrics.registry).splitlines()
    assert 'toolwright_toolsvc_calls_total{outcome="ok",tool="other"} 100.0' in lines
    assert not [line for line in lines if "made_" in line]


class Full(Tool):
    name = "full"

    def call(self, state: object, call: object) -> str:
        return "x"

    def figures(self) -> Mapping[str, float]:
        return {"sandboxes_ready": 3, "jails_replaced_total": 2}


async def test_a_host_counts_a_call_once_however_often_it_is_asked_for() -> None:
    tool = Full()
    metrics = Metrics([tool])
    async with hosting(tool, watch=metrics) as host:
        metrics.look_at(host)
        for _ in range(3):
            await host.call(calling("c", tool="full"))
        lines = page(metrics.registry).splitlines()
    assert 'toolwright_toolsvc_calls_total{outcome="ok",tool="full"} 1.0' in lines
    assert "toolwright_toolsvc_sessions 1.0" in lines
    assert 'toolwright_toolsvc_sandboxes_ready{tool="full"} 3.0' in lines
    assert 'toolwright_toolsvc_jails_replaced_total{tool="full"} 2.0' in lines


class Given(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def test_hosts_share_a_page_and_keep_their_numbers_apart() -> None:
    pages = {}
    for host, calls in (("0", 1), ("1", 3)):
        metrics = Metrics(SERVED)
        for _ in range(calls):
            metrics.call_recorded(recorded("a"))
        pages[host] = page(metrics.registry)
    registry = CollectorRegistry()
    registry.register(Given(merge(pages)))
    text = page(registry)
    assert 'toolwright_toolsvc_calls_total{host="0",outcome="ok",tool="a"} 1.0' in text
    assert 'toolwright_toolsvc_calls_total{host="1",outcome="ok",tool="a"} 3.0' in text
    assert text.count("# TYPE toolwright_toolsvc_calls_total counter") == 1
    assert text.count("# TYPE toolwright_toolsvc_run_seconds histogram") == 1
    assert 'toolwright_toolsvc_run_seconds_count{host="1",tool="a"} 3.0' in text


async def seen(port: int, **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics", headers=headers) as answer,
    ):
        return answer.status, await answer.text()


def server(address: str, *, public: bool = False) -> MetricsServer:
    metrics = Metrics(())
    metrics.lease_ended()
    return MetricsServer(address, page_of(metrics.registry), public=public)


async def test_where_there_is_a_token_the_page_asks_for_it_unless_it_is_public(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOOLWRIGHT_TOKEN", "secret")
    async with server("0.0.0.0:0") as page:
        assert (await seen(page.port))[0] == 401
        status, text = await seen(page.port, Authorization="Bearer secret")
        assert (status, "toolwright_toolsvc_leases_ended_total 1.0" in text) == (200, True)
        with pytest.raises(ListenError, match=rf"{page.port}.*choose another port"):
            async with server(f"0.0.0.0:{page.port}"):
                pass
    async with server("0.0.0.0:0", public=True) as page:
        assert (await seen(page.port))[0] == 200


@pytest.mark.parametrize(
    ("address", "says"),
    [("127.0.0.1:x", "host:port"), ("0.0.0.0:9300", "--metrics-public")],
)
async def test_an_address_that_will_not_do_is_said_to(
    address: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLWRIGHT_TOKEN", raising=False)
    with pytest.raises(ListenError, match=says):
        async with server(address):
            pass
