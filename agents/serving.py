"""One agent host as a process: how it begins, and how it ends."""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import secrets
from contextlib import suppress
from pathlib import Path

import agents
import toolwright
from agents.config import AgentsTable
from agents.engine_link import EngineLink
from agents.errors import StartError
from agents.host import AgentHost, Program
from agents.jail.jail import Jail, make_jail
from agents.jail.selftest import examine
from agents.work_folder import base_folder
from toolwright.process.stop_signals import stop_event
from toolwright.recipe import INGRESS_ADDRESS, Agent, Recipe, task_key
from toolwright.recipe.agent_program import agent_folders, agent_words, started_agents
from toolwright.rpc.auth import tokens_here
from toolwright.rpc.channel import open_channel
from toolwright.rpc.options import TOKEN_VARIABLE, may_have_token
from toolwright.rpc.server import Server

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


async def serve(recipe: Recipe, table: AgentsTable, *, ingress: str, worker: str) -> None:
    """Serves until SIGTERM or Ctrl-C. ingress: URL of the ingress; "" = the recipe's. worker: name
    of this host; "" = the machine's. Raises StartError, RecipeError or ListenError."""
    programs = {
        name: _program(recipe, name, agent) for name, agent in started_agents(recipe).items()
    }
    if not programs:
        raise StartError(
            'the recipe starts no agents: set task.agent.kind to "command" or "function"'
        )
    for name, program in programs.items():
        print(_in_words(name, program), flush=True)
    worker = worker or platform.node()
    stop = stop_event()
    # Processes that a dead keeper leaves are this one's to end.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    engine = recipe.shared.run.engine
    token = os.environ.get(TOKEN_VARIABLE, "") if may_have_token(engine, engine) else ""
    jails = {program.jail: None for program in programs.values() if program.jail is not None}
    with base_folder(recipe.run_folder, worker, jails=bool(jails)) as base:
        for jail in jails:
            await examine(jail, base, recipe.run_folder, (recipe.folder, Path.home()))
        server = Server(table.address, tokens=tokens_here())
        await server.start()
        channel = open_channel(engine, token)
        try:
            link = EngineLink(channel, worker, secrets.token_hex(8))
            host = AgentHost(link, programs, base, ingress or ingress_of(recipe))
            running = asyncio.create_task(host.run())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        finally:
            await channel.close()
            await server.stop(0)


def _program(recipe: Recipe, name: str, agent: Agent) -> Program:
    words = agent_words(recipe, name, agent)
    jail: Jail | None = None
    if agent.sandbox != "none":
        folders = [*agent_folders(recipe, agent)]
        if agent.kind == "function":
            folders += [folder for one in (agents, toolwright) for folder in one.__path__]
        jail = make_jail(agent.sandbox, words[0], folders)
    return Program(rules=agent, words=words, jail=jail)


def ingress_of(recipe: Recipe) -> str:
    """URL of the recipe's ingress, as a process of this machine reaches it."""
    address = str(recipe.raw.get("ingress", {}).get("address", INGRESS_ADDRESS))
    host, _, port = address.rpartition(":")
    return f"http://{'127.0.0.1' if host in ('', '0.0.0.0', '[::]') else host}:{port}"


def _in_words(name: str, program: Program) -> str:
    key, rules = f"{task_key(name)}.agent", program.rules
    text = f"{key}: at most {rules.at_once} agents at a time, sandbox {rules.sandbox}"
    if rules.sandbox == "none":
        text += ": warning: an agent may do what this account may, and reach any network"
    return text
