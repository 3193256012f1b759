"""One agent host as a process: how it begins, and how it ends."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress

from agents.config import AgentsTable
from agents.engine_link import EngineLink
from agents.errors import StartError
from agents.host import AgentHost, Program
from agents.kinds.choice import kind_of, needs_tmp
from agents.kinds.kind import Site
from agents.process.keepers import Keepers, adopt_orphans
from agents.work_folder import base_folder
from toolwright.process.stop_signals import stop_event
from toolwright.recipe import INGRESS_ADDRESS, Recipe, task_key
from toolwright.recipe.agent_program import started_agents
from toolwright.rpc.auth import tokens_here
from toolwright.rpc.channel import open_channel
from toolwright.rpc.options import TOKEN_VARIABLE, may_have_token
from toolwright.rpc.server import Server


async def serve(recipe: Recipe, table: AgentsTable, *, ingress: str, worker: str) -> None:
    """Serves until SIGTERM or Ctrl-C. ingress: URL of the ingress; "" = the recipe's. worker: name
    of this host; "" = the machine's. Raises StartError, RecipeError or ListenError."""
    agents = started_agents(recipe)
    if not agents:
        raise StartError(
            'the recipe starts no agents: set task.agent.kind to "command", "function", "http" or '
            '"container"'
        )
    worker = worker or platform.node()
    stop = stop_event()
    keepers = Keepers()
    adopt_orphans()
    engine = recipe.shared.run.engine
    token = os.environ.get(TOKEN_VARIABLE, "") if may_have_token(engine, engine) else ""
    jails = any(map(needs_tmp, agents.values()))
    async with AsyncExitStack() as stack:
        stack.callback(keepers.end_all_orphans)
        base = await stack.enter_async_context(base_folder(recipe.run_folder, worker, jails=jails))
        site = Site(base=base, ingress=ingress or ingress_of(recipe), keepers=keepers)
        programs = {}
        for name, rules in agents.items():
            kind = kind_of(recipe, name, rules, site)
            stack.push_async_callback(kind.close)
            programs[name] = Program(kind=kind, at_once=rules.at_once)
            key = f"{task_key(name)}.agent"
            print(f"{key}: at most {rules.at_once} agents at a time, {kind.words}", flush=True)
        server = Server(table.address, tokens=tokens_here())
        await server.start()
        stack.push_async_callback(server.stop, 0)
        channel = open_channel(engine, token)
        stack.push_async_callback(channel.close)
        link = EngineLink(channel, worker, secrets.token_hex(8))
        host = AgentHost(link, programs, keepers.end_orphans)
        running = asyncio.create_task(_prepare_and_run(host, programs.values()))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def _prepare_and_run(host: AgentHost, programs: Iterable[Program]) -> None:
    for program in programs:
        await program.kind.prepare()
    await host.run()


def ingress_of(recipe: Recipe) -> str:
    """URL of the recipe's ingress, as a process of this machine reaches it."""
    address = str(recipe.raw.get("ingress", {}).get("address", INGRESS_ADDRESS))
    host, _, port = address.rpartition(":")
    return f"http://{'127.0.0.1' if host in ('', '0.0.0.0', '[::]') else host}:{port}"
