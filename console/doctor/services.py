"""The recipe's tool services, what [[console.services]] names, and the engine's own port."""

from __future__ import annotations

import asyncio
import json
from tempfile import TemporaryDirectory

from console.asked.needs import makers
from console.asked.plan import Maker
from console.asked.ports import address_of, own_services
from console.doctor.types import Check, Finding, Findings, Patient, ok, problem, unknown, warning
from console.machine.programs import ask, module
from toolwright.process.sockets import folder_for_sockets
from toolwright.recipe import Recipe
from toolwright.recipe.models.shared_tables import Tool

TOOLS, ENGINE = "tools", "engine's port"
START_S = 20.0
"""A search index may take longer, which is no fault."""


async def services(patient: Patient) -> Findings:
    from console.machine.listeners import is_here, service_at

    assert patient.recipe is not None, "these checks are for a recipe"
    recipe, started = patient.recipe, {one.name: one for one in patient.console.services}
    found: list[Finding] = []
    own = {one.name: address_of(one.ready) for one in own_services(recipe)}
    memories = {f"memory:{own['memory']}"} if "memory" in own else set()
    for name, table in recipe.shared.tools.items():
        if table.serve and memories.intersection(table.serve):
            text = "asks the recipe's memory, which `toolwright run` starts first: not tried"
            found.append(ok(TOOLS, f"tools.{name}: {text}"))
            continue
        if table.serve:
            if maker := _made_first(patient, table):
                text = f"{maker.makes} is not there yet, `toolwright run` makes it by {maker.where}"
                found.append(warning(TOOLS, f"tools.{name}: not started here: {text}"))
                continue
            found.append(await asyncio.to_thread(_served, recipe, name, table))
            continue
        address = table.service or ""
        if address.endswith(":0"):
            found.append(ok(TOOLS, f"tools.{name}: started on a free port"))
        elif name in started and is_here(address):
            who = await service_at(f"grpc:{address}")
            found.append(
                await asyncio.to_thread(_asked, recipe, name, table, address)
                if who.who != "nobody"
                else ok(TOOLS, f"tools.{name}: nobody at {address}; `toolwright run` starts it")
            )
        else:
            found.append(await asyncio.to_thread(_asked, recipe, name, table, address))
    for one in (*own_services(recipe), *started.values()):
        if one.name in recipe.shared.tools or one.ready.rstrip("/").endswith(":0"):
            continue
        who = await service_at(one.ready)
        if who.who == "stranger":
            mend = "end it, or name another port (0 is any free one)"
            found.append(problem(TOOLS, f"{one.name}: {who.why}", mend))
        else:
            text = "answers" if who.who == "right" else "not there; `toolwright run` starts it"
            found.append(ok(TOOLS, f"{one.name}: {text}"))
    return found or [ok(TOOLS, "the recipe has none")]


def _made_first(patient: Patient, table: Tool) -> Maker | None:
    """The maker of a missing path in the words of `serve`; None without one."""
    recipe = patient.recipe
    assert recipe is not None, "these checks are for a recipe"
    paths = {recipe.resolve(word.rpartition("=")[2]) for word in table.words}
    missing = (one for one in makers(recipe, patient.console) if not one.makes.exists())
    return next((one for one in missing if one.makes in paths), None)


def _served(recipe: Recipe, name: str, table: Tool) -> Finding:
    """Whether what the engine will start does start: it serves, and ends at once."""
    with TemporaryDirectory(prefix="toolwright-", dir=folder_for_sockets()) as private:
        words = (*table.words, "--until-eof", "--listen", f"unix:{private}/tools.sock")
        start = module("toolsvc.cli", "serve", *words)
        said = ask(start, seconds=START_S, folder=recipe.folder)
    if said.status is None:
        return unknown(TOOLS, f"tools.{name}: {table.where}: not seen to serve, {said.error}")
    if said.status != 0:
        why = said.last_line.removeprefix("toolsvc: ")
        return problem(TOOLS, f"tools.{name}: {table.where}: {why}", f"mend tools.{name}.serve")
    return ok(TOOLS, f"tools.{name}: {table.where} starts")


def _asked(recipe: Recipe, name: str, table: Tool, address: str) -> Finding:
    """What the service says of its tools, by `toolsvc list`, which knows tokens and TLS."""
    given = {"--tls-ca": table.tls_ca, "--tls-cert": table.tls_cert, "--tls-key": table.tls_key}
    tls = [w for option, file in given.items() if file for w in (option, str(recipe.resolve(file)))]
    said = ask(module("toolsvc.cli", "list", address, "--json", *tls), seconds=15.0)
    if said.status != 0:
        mend = "start it, or correct tools.NAME.service; docs/tools/index.md has the command"
        return problem(TOOLS, f"tools.{name}: {said.last_line.removeprefix('toolsvc: ')}", mend)
    try:
        tools = [str(tool["name"]) for tool in json.loads(said.out)["tools"]]
    except (ValueError, KeyError, TypeError):
        return warning(TOOLS, f"tools.{name} at {address}: an answer that is no list of tools")
    lacks = [tool for tool in table.names if tool not in tools]
    if lacks:
        mend = f"`toolsvc list {address}` shows what it has; correct tools.{name}.names"
        return problem(TOOLS, f"tools.{name} has no {', '.join(lacks)}", mend)
    return ok(TOOLS, f"tools.{name} at {address}: {', '.join(tools)}")


async def engine(patient: Patient) -> Findings:
    """What answers at run.engine: nothing, an engine, or another program."""
    from console.machine.listeners import accepts_at, holder, is_here
    from console.machine.ready import grpc_serves

    assert patient.recipe is not None, "these checks are for a recipe"
    address = patient.recipe.shared.run.engine
    if address.endswith(":0"):
        return [ok(ENGINE, f"{address}: a free port is taken")]
    if address.startswith("unix:"):
        return [ok(ENGINE, address)]
    if not is_here(address):
        mend = "correct run.engine: the engine runs on the machine of the learner's first rank"
        if not await accepts_at(address):
            return [problem(ENGINE, f"{address} is not this machine's, and nobody is there", mend)]
        return [ok(ENGINE, f"{address}: somebody listens on that machine")]
    if not await accepts_at(address):
        return [ok(ENGINE, f"{address} is free")]
    held = holder(address)
    if await grpc_serves(address):
        mend = "if that is another run's: another run.engine (127.0.0.1:0 is any free port)"
        return [warning(ENGINE, f"{address}: a gRPC server answers there ({held})", mend)]
    mend = "end it, or set run.engine to another port (127.0.0.1:0 is any free one)"
    return [problem(ENGINE, f"{address} is held by {held}, which is no engine", mend)]


OF_RECIPE = (
    Check(subject=TOOLS, wait=services, seconds=45.0, needs="toolsvc"),
    Check(subject=ENGINE, wait=engine, seconds=15.0),
)
