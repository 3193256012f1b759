"""What `engine check` says of agents that `agents serve` starts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from engine.offline.check.remarks import LEFT_OUT, WARNING
from engine.offline.missing_inputs import producer_of
from toolwright.jail.view import folder_fault, jail_account, shown_folders
from toolwright.recipe import Agent, Recipe, task_key
from toolwright.recipe.agent_program import agent_folders, agent_words, started_agents


def agent_lines(recipe: Recipe) -> Iterator[str]:
    """A line an agent. Raises RecipeError if its program, a file of it, a folder or its
    sandbox is not there, unless the recipe produces the program or the folder."""
    for name, agent in started_agents(recipe).items():
        key = f"{task_key(name)}.agent"
        missing = next(_missing(recipe, agent), None) if agent.in_process else None
        if missing:
            yield "{}{}: {} is not there yet, `toolwright run` makes it by {}".format(
                LEFT_OUT, key, *missing
            )
            continue
        words = agent_words(recipe, name, agent)
        if agent.in_process and agent.sandbox == "none":
            yield (
                f'{WARNING}{key}.sandbox = "none": an agent may do what its account may, and reach '
                "any network"
            )
        if agent.in_process and agent.sandbox != "none":
            yield from (f"{WARNING}{key}: {fault}" for fault in _hidden(recipe, agent, words[0]))
        where = {"http": f"the service {agent.url}", "container": f"the image {agent.image}"}
        said = " ".join(filter(None, (where.get(agent.kind), shlex.join(words))))
        yield f"{key}: {said}, at most {agent.at_once} at a time"


def _missing(recipe: Recipe, agent: Agent) -> Iterator[tuple[str, str]]:
    """Program and folders that are not there, each with what produces it or a folder around it."""
    for word in (*agent.command[:1], *agent.folders):
        path = recipe.resolve(word)
        if not path.exists():
            found = (producer_of(recipe, one) for one in (path, *path.parents))
            if producer := next(filter(None, found), ""):
                yield word, producer


def _hidden(recipe: Recipe, agent: Agent, program: str) -> Iterator[str]:
    """Why a jail on this machine cannot show the program or a folder."""
    if (account := jail_account()) is not None:
        folders = shown_folders(program, agent_folders(recipe, agent))
        yield from filter(None, (folder_fault(folder, account) for folder in folders))
