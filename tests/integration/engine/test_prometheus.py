"""The real Prometheus asks a real engine, and loads the alerts and the dashboard's queries."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.integration.engine.conftest import MakeWorld
from tests.support.docs import DOCS
from tests.support.net import free_port
from tests.support.waiting import PATIENCE, passes

pytestmark = pytest.mark.quick

SHIPPED = DOCS.parent / "deploy" / "observability"
RUN = {"steps": 1, "groups_per_step": 2, "group_size": 2}


class Prometheus:
    """What its HTTP API says."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.http = http

    async def ask(self, path: str, **words: str) -> Any:
        """`data` of an answer. AssertionError with its words where it is an error."""
        async with self.http.get(f"{self.url}/api/v1/{path}", params=words) as answer:
            said = await answer.json()
        assert said["status"] == "success", f"{words}: {said}"
        return said["data"]

    async def shows(self, query: str, value: float) -> None:
        """Waits until a query of one series has this value."""

        async def does() -> bool:
            found = (await self.ask("query", query=query))["result"]
            return [float(one["value"][1]) for one in found] == [value]

        await asked_until(does, f"{query} to be {value:g}")

    async def ready(self) -> None:
        async def is_ready() -> bool:
            with suppress(aiohttp.ClientError):
                async with self.http.get(f"{self.url}/-/ready") as answer:
                    return answer.status == 200
            return False

        await asked_until(is_ready, "Prometheus")


async def asked_until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """`until` of what another program has to be asked."""
    async with asyncio.timeout(PATIENCE):
        while not await holds():
            await passes(0.2, f"{what} is asked again")


@asynccontextmanager
async def watching(folder: Path, ports: dict[str, int]) -> AsyncIterator[Prometheus]:
    """Prometheus with the shipped configuration, every second, of pages at these ports."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.fail("this test needs Prometheus: deploy/setup/system.sh prometheus")
    shipped = yaml.safe_load((SHIPPED / "prometheus.yml").read_text(encoding="utf-8"))
    shipped["global"] = dict.fromkeys(("scrape_interval", "evaluation_interval"), "1s")
    shipped["rule_files"] = [str(SHIPPED / "alerts.yml")]
    for job in shipped["scrape_configs"]:
        job["static_configs"][0]["targets"] = [f"127.0.0.1:{ports[job['job_name']]}"]
    configuration = folder / "prometheus.yml"
    configuration.write_text(yaml.safe_dump(shipped), encoding="utf-8")
    port = free_port()
    log = (folder / "prometheus.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        program,
        f"--config.file={configuration}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        stdout=log,
        stderr=log,
    )
    try:
        async with aiohttp.ClientSession() as http:
            prometheus = Prometheus(f"http://127.0.0.1:{port}", http)
            await prometheus.ready()
            yield prometheus
    finally:
        process.terminate()
        await process.wait()
        log.close()


async def test_prometheus_watches_an_engine(world: MakeWorld, tmp_path: Path) -> None:
    ports = {job: free_port() for job in ("engine", "toolsvc", "learner", "memory")}
    here = await world(run=RUN, engine={"metrics_port": ports["engine"]})
    async with here.engine() as run, watching(tmp_path, ports) as prometheus:
        await run.learner.lease(count=2)
        await prometheus.shows('sum(toolwright_engine_trajectories_total{run="my-run"})', 4)
        await prometheus.shows('up{job="engine"}', 1)
        await prometheus.shows('up{job="memory"}', 0)
        (rules,) = (await prometheus.ask("rules"))["groups"]
        health = {rule["name"]: (rule["health"], rule.get("lastError")) for rule in rules["rules"]}
        assert set(health.values()) <= {("ok", None), ("unknown", None)}, health
        pending = await prometheus.ask("alerts")
        jobs = {one["labels"]["job"] for one in pending["alerts"]}
        assert jobs <= {"toolsvc", "learner", "memory"}  # which do not run here
        for query in queries():
            await prometheus.ask("query", query=query)


def queries() -> list[str]:
    """The dashboard's, as Grafana sends them where all runs and instances are chosen."""
    panels = json.loads((SHIPPED / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert asked
    return [
        one.replace('run=~"$run"', 'run=~".*"')
        .replace('instance=~"$instance"', 'instance=~".*"')
        .replace("$__rate_interval", "1m")
        for one in asked
    ]
