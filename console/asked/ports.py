"""Addresses of a run: port 0 of the recipe becomes a free one, the same for who serves and asks.

Pure: free ports are given, and one that the recipe names or that was given before is passed over,
since the process that gets it may not listen yet. A port 0 stands in `run.engine`,
`sampler.endpoints`, `memory.address`, `ingress.address`, `agents.address`, the `service` of a tool
or the `ready` of a [[console.services]] entry. The entry named as a tool is that tool's service. If
the tool is served, it is what a URL with port 0 in its words or options leads to: a model that
plays the tool.
One named `sampler` is the sampler. A recipe's [memory] and [ingress], and agents that it starts,
are services like those, without an entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from console.config import ConsoleTable, Service, port_of
from console.errors import NothingStarted
from toolwright.recipe import AGENTS_ADDRESS, INGRESS_ADDRESS, MEMORY_ADDRESS, Recipe
from toolwright.recipe.agent_program import started_agents
from toolwright.recipe.assignments import assignments
from toolwright.recipe.open_ports import OPEN_URL

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
SAMPLER = "sampler"
TABLES = {
    "memory": ("grpc:{}", MEMORY_ADDRESS),
    "ingress": ("http://{}/v1/models", INGRESS_ADDRESS),  # /health wants an engine
    "agents": ("grpc:{}", AGENTS_ADDRESS),
}
"""Tables whose process `toolwright run` starts as TABLE serve: (`ready`, usual address)."""
ANY_PORT = "127.0.0.1:0"
MOST_TRIES = 1000
"""Ports that `free` may offer in vain, before one that no key names."""
_OPEN = re.compile(r":0(?=/|$)")
_PORT = re.compile(r":([0-9]{1,5})(?=/|$)")
"""In a word of `tools.NAME.serve`, an address or a URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """`overrides`: what every process is told. `services`: with their real `ready`."""

    overrides: tuple[str, ...]
    services: tuple[Service, ...]


def settle(recipe: Recipe, table: ConsoleTable, free: Callable[[], int]) -> Addresses:
    """Every port 0 replaced. free: offers a port, another one at each call.

    Raises NothingStarted for a port 0 that this machine cannot choose or that no process would
    serve, and if `free` offers only ports that are taken.
    """
    services = {one.name: one for one in (*own_services(recipe), *table.services)}
    free = _once(free, recipe, tuple(services.values()))
    chosen = {
        name: one.model_copy(update={"ready": _with_port(one.ready, f"{name}.ready", free)})
        for name, one in services.items()
    }
    overrides = [
        *_engine(recipe, free),
        *_own(recipe, chosen),
        *_endpoints(recipe, table, chosen, free),
        *_tools(recipe, chosen),
    ]
    return Addresses(overrides=tuple(overrides), services=tuple(chosen.values()))


def own_services(recipe: Recipe) -> tuple[Service, ...]:
    """`memory serve` and `ingress serve`, for the tables that the recipe has; `ingress serve` and
    `agents serve` for agents that the recipe starts."""
    found = []
    agents = ("ingress", "agents") if started_agents(recipe) else ()
    for name, (ready, usual) in TABLES.items():
        table = recipe.raw.get(name, {"address": ANY_PORT} if name in agents else None)
        if isinstance(table, Mapping) and (name != "agents" or agents):
            address = table.get("address", usual)
            found.append(Service(name=name, run=(name, "serve"), ready=ready.format(address)))
    return tuple(found)


def _own(recipe: Recipe, chosen: Mapping[str, Service]) -> Iterator[str]:
    for service in own_services(recipe):
        if port_of(service.ready) == 0:
            yield f"{service.name}.address={address_of(chosen[service.name].ready)}"


def _once(
    free: Callable[[], int], recipe: Recipe, services: Sequence[Service]
) -> Callable[[], int]:
    """No port twice, and none that the recipe names."""
    shared = recipe.shared
    named = (shared.run.engine, *shared.sampler.endpoints, *(one.ready for one in services))
    taken = {port_of(address) for address in named}
    taken |= {port_of(tool.service) for tool in shared.tools.values()}
    for tool in shared.tools.values():
        taken |= {int(port) for word in tool.words for port in _PORT.findall(word)}

    def next_free() -> int:
        for _ in range(MOST_TRIES):
            if (port := free()) not in taken:
                taken.add(port)
                return port
        raise NothingStarted(
            f"{MOST_TRIES} free ports were tried and the recipe names each of them: name the ports "
            "that stand as 0"
        )

    return next_free


def address_of(ready: str) -> str:
    """HOST:PORT of a `ready` or a URL."""
    return ready.rpartition("//")[2].removeprefix("grpc:").partition("/")[0]


def _engine(recipe: Recipe, free: Callable[[], int]) -> Iterator[str]:
    engine = recipe.shared.run.engine
    if port_of(engine) != 0:
        return
    listen = recipe.raw.get("engine", {}).get("listen", "")
    if listen:
        raise NothingStarted(
            f"run.engine = {engine!r} takes any port and engine.listen = {listen!r} a certain one: "
            "name the port in run.engine too"
        )
    yield f"run.engine={_with_port(engine, 'run.engine', free)}"


def _endpoints(
    recipe: Recipe, table: ConsoleTable, chosen: dict[str, Service], free: Callable[[], int]
) -> Iterator[str]:
    endpoints = recipe.shared.sampler.endpoints
    if not any(port_of(url) == 0 for url in endpoints):
        return
    if SAMPLER in chosen:
        if len(endpoints) > 1:
            raise NothingStarted(
                f"sampler.endpoints has {len(endpoints)} servers, and [[console.services]] "
                "'sampler' is one of them: name their ports"
            )
        found = [f"http://{address_of(chosen[SAMPLER].ready)}"]
    elif table.sampler.way == "none":
        raise NothingStarted(
            "sampler.endpoints has port 0, which is any, and console.sampler.way = 'none' starts "
            "no sampler: name the port of a sampler that runs"
        )
    else:
        found = [_with_port(url, "sampler.endpoints", free) for url in endpoints]
    yield f"sampler.endpoints={json.dumps(found)}"


def _tools(recipe: Recipe, chosen: dict[str, Service]) -> Iterator[str]:
    used = recipe.shared.used_tools
    for name, tool in recipe.shared.tools.items():
        is_used = name in used
        if tool.serve and name in chosen:
            port = port_of(chosen[name].ready)
            words = [OPEN_URL.sub(rf"\g<1>{port}", word) for word in tool.serve]
            if words != list(tool.serve):
                yield f"tools.{name}.serve={json.dumps(words)}"
            for key, text in assignments(tool.options):
                if (url := OPEN_URL.sub(rf"\g<1>{port}", text)) != text:
                    yield f"tools.{name}.options.{key}={url}"
        elif is_used and (word := next(filter(OPEN_URL.search, tool.words), "")):
            raise NothingStarted(
                f"tools.{name}.serve has {word!r}, port 0, which is any: start what listens there "
                f"by a [[console.services]] entry with name = {name!r}, or name the port"
            )
        if port_of(tool.service) != 0:
            continue
        if name not in chosen:
            raise NothingStarted(
                f"tools.{name}.service = {tool.service!r} has port 0, which is any: start it with "
                f"tools.{name}.serve, or by a [[console.services]] entry with name = {name!r}"
            )
        yield f"tools.{name}.service={address_of(chosen[name].ready)}"


def _with_port(address: str, key: str, free: Callable[[], int]) -> str:
    if port_of(address) != 0:
        return address
    host = address_of(address).rpartition(":")[0]
    if host not in LOOPBACK:
        raise NothingStarted(
            f"{key} = {address!r}: port 0 is any free one of this machine, so its host is "
            "127.0.0.1; name the port of another"
        )
    return _OPEN.sub(f":{free()}", address, count=1)
