"""Which servers of a recipe answer already, and which have to be started.

A server that answers is used and not stopped. Raises NothingStarted if another program or the
engine of another run is at an address, or if a free address cannot get a server. The same holds if
SGLang's environment is missing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from console.asked.ports import SAMPLER, address_of
from console.asked.setup import Setup
from console.config import Service
from console.course.commands import sampler_python
from console.course.serves import check_engine
from console.errors import NothingStarted
from console.machine.listeners import accepts_at, holder, is_here, sampler_at, service_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What has to be started; `found`: (name, address) of what answers. `samplers`: by name."""

    services: tuple[Service, ...] = ()
    samplers: dict[str, str] = field(default_factory=dict)
    engine: bool = True
    found: tuple[tuple[str, str], ...] = ()


async def look(setup: Setup, services: tuple[Service, ...]) -> Missing:
    """What answers at the addresses of the recipe; `services` with their real ports."""
    found: list[tuple[str, str]] = []
    absent = []
    for service in services:
        who = await service_at(service.ready)
        address = address_of(service.ready)
        if who.who == "stranger":
            raise NothingStarted(
                f"{service.name}: {who.why}, and {holder(address)} listens at {address}: end it, "
                "or name another port (0 is any free one)"
            )
        if who.who == "right":
            found.append((service.name, address))
        elif not is_here(address):
            raise NothingStarted(
                f"{service.name}: nobody answers at {address}, which is another machine's: start "
                "it there, or name 127.0.0.1"
            )
        else:
            absent.append(service)
    samplers = await _samplers(setup, {address_of(one.ready) for one in services}, found)
    engine = setup.recipe.shared.run.engine
    who = await service_at(f"grpc:{engine}")
    if who.who == "stranger":
        raise NothingStarted(
            f"run.engine = {engine}: {who.why}, and {holder(engine)} listens there: end it, or "
            "name another port (0 is any free one)"
        )
    if who.who == "right":
        await check_engine(setup)
        found.append(("engine", engine))
    elif not is_here(engine):
        raise NothingStarted(
            f"run.engine = {engine}: nobody answers, and it is another machine's address: start "
            "`engine serve` there, or name 127.0.0.1"
        )
    await _tools(setup, {address_of(one.ready) for one in services})
    return Missing(
        services=tuple(absent),
        samplers=samplers,
        engine=who.who == "nobody",
        found=tuple(found),
    )


async def _samplers(setup: Setup, served: set[str], found: list[tuple[str, str]]) -> dict[str, str]:
    endpoints = setup.recipe.shared.sampler.endpoints
    way = setup.table.sampler.way
    absent = {}
    answers = await asyncio.gather(*(sampler_at(url) for url in endpoints))
    for number, (url, who) in enumerate(zip(endpoints, answers, strict=True), 1):
        address = address_of(url)
        name = SAMPLER if len(endpoints) == 1 else f"{SAMPLER}-{number}"
        if address in served:
            continue
        if who.who == "right":
            found.append((name, url))
        elif who.who == "stranger":
            here = f" ({holder(address)})" if is_here(address) else ""
            raise NothingStarted(
                f"sampler.endpoints: what is at {url}{here} {who.why}: name an SGLang server, or "
                "a free port"
            )
        elif way == "none" or not is_here(address):
            why = "console.sampler.way = 'none'" if is_here(address) else "another machine's"
            raise NothingStarted(
                f"sampler.endpoints: nobody answers at {url}, and it is not started from here "
                f"({why}): start it, or correct the address"
            )
        else:
            absent[name] = url
    if absent:
        sampler_python(setup)
    return absent


async def _tools(setup: Setup, served: set[str]) -> None:
    """Tool services that other programs start."""
    shared = setup.recipe.shared
    for name in shared.used_tools:
        address = shared.tools[name].service
        if not address or address in served:
            continue
        if not await accepts_at(address):
            raise NothingStarted(
                f"tools.{name}.service: nobody answers at {address}. Let the engine start it "
                f"(tools.{name}.serve), let toolwright run start it ([[console.services]]), or "
                "start it yourself"
            )
