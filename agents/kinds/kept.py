"""Agents as processes below keepers: the kinds `command` and `function`, bare or in a jail."""

from __future__ import annotations

import os
from abc import abstractmethod
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from agents.client import ClientSettings
from agents.environment import environment
from agents.errors import StartError
from agents.jail.forwarder import forwarded
from agents.jail.jail import PORT, Jail, JailStart
from agents.jail.named_files import check_names, moved
from agents.jail.selftest import examine
from agents.kinds.kind import Assigned, Kind, Played, Site
from agents.outcomes import ending_of, lost, with_result
from agents.process.output import BoundedOutput
from agents.work_folder import result_bytes, work_folder
from toolwright.recipe import Agent, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """A process that has ended. code: 128 + N for signal N. result: content of its result file."""

    code: int
    output: BoundedOutput
    result: bytes | None


class KeptKind(Kind):
    """An agent is a process in a folder of its own. A subclass says how it is started."""

    def __init__(self, rules: Agent, site: Site) -> None:
        self._rules = rules
        self._site = site

    @abstractmethod
    async def _run(self, folder: Path, key: str) -> Exited:
        """An agent, from its start to its end. folder: its own, with the task's file. Raises
        OSError or ValueError if it cannot be started."""

    async def play(self, assigned: Assigned) -> Played:
        try:
            async with work_folder(self._site.base, assigned.number, assigned.task) as folder:
                exited = await self._run(folder, assigned.key)
        except (OSError, ValueError) as error:  # of the folder, the task or the command
            return Played(ending=lost(str(error)))
        last_line = exited.output.last_line()
        ending = ending_of(exited.code, self._rules.retry_exits, last_line)
        ending, result = with_result(ending, exited.result or b"{}")
        return Played(ending=ending, result=result, output=exited.output.text())


class ProcessKind(KeptKind):
    """`command` and `function`."""

    def __init__(
        self,
        rules: Agent,
        words: tuple[str, ...],
        jail: Jail | None,
        site: Site,
        recipe: Recipe | None = None,
    ) -> None:
        """words: command line. jail: None = agents have none. recipe: its files and its run are
        what a jail must hide."""
        super().__init__(rules, site)
        self._words = words
        self._jail = jail
        self._recipe = recipe
        self._address = address_of(site.ingress)
        self.words = f"sandbox {rules.sandbox}"
        if jail is None:
            self.words += ": warning: an agent may do what this account may, and reach any network"

    async def prepare(self) -> None:
        if self._jail is not None and self._recipe is not None:
            check_names(self._words, self._jail.folders)
            folders = (self._recipe.folder, Path.home())
            await examine(self._jail, self._site.base, self._recipe.run_folder, folders)

    async def _run(self, folder: Path, key: str) -> Exited:
        jail, keepers = self._jail, self._site.keepers
        root = self._site.ingress if jail is None else f"http://127.0.0.1:{PORT}"
        client = ClientSettings.of(root, key)
        more = self._rules.environment
        variables = environment(client, folder, more, os.environ, jailed=jail is not None)
        if jail is None:
            async with keepers.started(self._words, folder, variables) as agent:
                code = await agent.wait()
            return Exited(code=code, output=agent.output, result=result_bytes(folder))
        words = moved(self._words, jail.folders, folder)
        jail.give(folder)
        async with AsyncExitStack() as stack:
            start = stack.enter_context(JailStart(words, folder, variables))
            agent = await stack.enter_async_context(
                keepers.started(jail.words(folder), "/", jail.environment(), start.stdin)
            )
            if (listener := await start.listener()) is not None:
                await stack.enter_async_context(forwarded(listener, *self._address))
            code = await agent.wait()
            own = start.exit_code()
        return Exited(
            code=code if own is None else own, output=agent.output, result=result_bytes(folder)
        )


def address_of(url: str) -> tuple[str, int]:
    """Host and port of a URL without a path. Raises StartError."""
    found = urlsplit(url)
    if found.scheme != "http" or not found.hostname or found.port is None:
        raise StartError(f"{url!r}: write the ingress as http://HOST:PORT")
    return found.hostname, found.port
