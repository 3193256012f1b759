"""What answers at the addresses of a recipe, and which servers have to be started.

`see` looks at every address, for `toolwright run` and for the doctor. A server that answers is used
and not stopped. An address is refused if another program or the engine of another run answers
there, and if it is free and no server can be started there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from console.asked.ports import SAMPLER, address_of
from console.asked.setup import Setup
from console.config import Service
from console.course.commands import sampler_python
from console.course.serves import check_engine
from console.errors import NothingStarted
from console.machine.listeners import Found, holder, is_here, sampler_at, service_at
from console.machine.ready import accepts_at

END_IT = "end it, or name another port (0 is any free one)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One address. `name`: the process as the course names it, or the recipe's key of a tool. `why`
    and `fix`: the reason of a refusal. `info`: what a sampler says of its model."""

    kind: Literal["service", "sampler", "engine", "tool"]
    name: str
    address: str
    answers: bool = False
    why: str = ""
    fix: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    service: Service | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What has to be started; `found`: (name, address) of what answers. `samplers`: by name."""

    services: tuple[Service, ...] = ()
    samplers: dict[str, str] = field(default_factory=dict)
    engine: bool = True
    found: tuple[tuple[str, str], ...] = ()


async def look(setup: Setup, services: tuple[Service, ...]) -> Missing:
    """What has to be started; `services` with their real ports. Raises NothingStarted for the first
    address that is refused, and without SGLang's environment if a sampler has to be started."""
    seen = await see(setup, services)
    for one in seen:
        if one.why:
            raise NothingStarted(f"{one.why}: {one.fix}" if one.fix else one.why)
    absent = [one for one in seen if not one.answers]
    samplers = {one.name: one.address for one in absent if one.kind == "sampler"}
    if samplers:
        sampler_python(setup)
    return Missing(
        services=tuple(one.service for one in absent if one.service is not None),
        samplers=samplers,
        engine=any(one.kind == "engine" for one in absent),
        found=tuple((one.name, one.address) for one in seen if one.answers and one.kind != "tool"),
    )


async def see(setup: Setup, services: tuple[Service, ...]) -> list[Seen]:
    """Every address, in the order services, samplers, engine, tool services of other programs."""
    served = {address_of(one.ready) for one in services}
    shared = setup.recipe.shared
    endpoints = shared.sampler.endpoints
    names = [
        SAMPLER if len(endpoints) == 1 else f"{SAMPLER}-{n + 1}" for n in range(len(endpoints))
    ]
    tools = {f"tools.{name}.service": shared.tools[name].service for name in shared.used_tools}
    return await asyncio.gather(
        *(_service(one) for one in services),
        *(
            _sampler(setup, name, url)
            for name, url in zip(names, endpoints, strict=True)
            if address_of(url) not in served
        ),
        _engine(setup),
        *(_tool(key, at) for key, at in tools.items() if at and at not in served),
    )


async def _service(service: Service) -> Seen:
    found, address = await service_at(service.ready), address_of(service.ready)
    seen = Seen(kind="service", name=service.name, address=address, service=service)
    start = "start it there, or name 127.0.0.1"
    return _judged(seen, service.name, found, address, start)


async def _sampler(setup: Setup, name: str, url: str) -> Seen:
    found = await sampler_at(url)
    seen = Seen(kind="sampler", name=name, address=url, info=found.info)
    key = f"sampler.endpoints: {url}"
    if found.who == "nobody" and setup.table.sampler.way == "none":
        why = f"{key}: no server answers, and console.sampler.way = 'none' starts no sampler"
        return replace(seen, why=why, fix="start it, or correct the address")
    start = "start it (docs/operate/sampler.md has the command), or correct the address"
    return _judged(seen, key, found, address_of(url), start)


async def _engine(setup: Setup) -> Seen:
    address = setup.recipe.shared.run.engine
    found = await service_at(f"grpc:{address}")
    seen = Seen(kind="engine", name="engine", address=address)
    if found.who == "right":
        try:
            await check_engine(setup)
        except NothingStarted as error:
            return replace(seen, why=str(error))
    start = "start `engine serve` there, or name 127.0.0.1"
    return _judged(seen, f"run.engine = {address}", found, address, start)


async def _tool(key: str, address: str) -> Seen:
    """A tool service that another program starts."""
    name = key.removesuffix(".service")
    seen = Seen(kind="tool", name=name, address=address, answers=await accepts_at(address))
    if seen.answers:
        return seen
    fix = (
        f"let the engine start it ({name}.serve), let toolwright run start it "
        "([[console.services]]), or start it yourself"
    )
    return replace(seen, why=f"{key}: no server answers at {address}", fix=fix)


def _judged(seen: Seen, key: str, found: Found, address: str, start: str) -> Seen:
    """start: the fix for another machine's address where nothing answers."""
    here = is_here(address)
    if found.who == "stranger":
        who = f" ({holder(address)})" if here else ""
        return replace(seen, why=f"{key}{who}: {found.why}", fix=END_IT)
    if found.who == "nobody" and not here:
        why = f"{key}: no server answers, and the address is another machine's"
        return replace(seen, why=why, fix=start)
    return replace(seen, answers=found.who == "right")
