"""The program of [task.agent]: the words that start an agent. `engine check` and the host read it.

`python` is the interpreter of this installation. A word that names a file of the recipe's folder
becomes its whole path, since an agent starts in a folder of its own. Its folder is the real one, as
jails show real folders. The file itself may be a link: the interpreter of an environment is one,
and its own path names the environment.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

from toolwright.recipe.models.tasks import Agent, task_key
from toolwright.recipe.reading import Recipe, RecipeError

_PYTHON = ("python", "python3")


def started_agents(recipe: Recipe) -> dict[str, Agent]:
    """The agents that `agents serve` starts, by the task's name; "" = the recipe has one task."""
    tasks = recipe.shared.each_task.items()
    found = {name: task.agent for name, task in tasks}
    return {name: agent for name, agent in found.items() if agent and agent.started_here}


def agent_words(recipe: Recipe, name: str, agent: Agent) -> tuple[str, ...]:
    """The command line of a task's agent. name: the task's. A service has none, and that of a
    container may be its image's. Raises RecipeError if the program, a file of it, the function's
    module, a folder, the sandbox, podman or the service's token is not there."""
    key = f"{task_key(name)}.agent"
    if agent.kind == "container":
        if shutil.which("podman") is None:
            raise RecipeError(f"{key}: podman is not on PATH: install podman and runc")
        return agent.command
    if agent.kind == "http":
        if agent.token_env and not os.environ.get(agent.token_env):
            raise RecipeError(f"{key}.token_env: set {agent.token_env} to the token of {agent.url}")
        return ()
    if agent.sandbox != "none" and shutil.which(agent.sandbox) is None:
        raise RecipeError(
            f'{key}.sandbox = "{agent.sandbox}": {agent.sandbox} is not on PATH; install it, name '
            'the other one of firejail and bwrap, or "none" for agents that you trust'
        )
    for folder in agent_folders(recipe, agent):
        if not os.path.isdir(folder):
            raise RecipeError(f"{key}.folders: no folder {folder}")
    if agent.kind == "function":
        return _function_words(recipe, f"{key}.function", agent.function)
    program, *rest = agent.command
    words = [_file_or_word(recipe, f"{key}.command", word) for word in rest]
    return (_program(recipe, f"{key}.command", program), *words)


def agent_folders(recipe: Recipe, agent: Agent) -> list[str]:
    """Folders that the recipe shows to a jailed agent."""
    return [str(recipe.resolve(folder)) for folder in agent.folders]


def _program(recipe: Recipe, key: str, word: str) -> str:
    if word in _PYTHON:
        return sys.executable
    found = _whole(recipe, word) if "/" in word else shutil.which(word)
    if found is None or not os.access(found, os.X_OK):
        raise RecipeError(f"{key}: {word!r} is not a program: install it, or name its path")
    return found


def _file_or_word(recipe: Recipe, key: str, word: str) -> str:
    file = _whole(recipe, word) if word and "\0" not in word else ""
    if os.path.isfile(file):
        return file
    if word.endswith((".py", ".sh")) and not word.startswith("-"):
        raise RecipeError(f"{key}: no file {file}")
    return word


def _whole(recipe: Recipe, path: str) -> str:
    folder, name = os.path.split(recipe.folder / path)
    return os.path.join(os.path.realpath(folder), name)


def _function_words(recipe: Recipe, key: str, path: str) -> tuple[str, ...]:
    where, colon, name = path.rpartition(":")
    if not colon:
        raise RecipeError(f"{key} = {path!r}: write module:function or ./file.py:function")
    if where.endswith(".py"):
        path = f"{recipe.resolve(where)}:{name}"
        if not recipe.resolve(where).is_file():
            raise RecipeError(f"{key}: no file {recipe.resolve(where)}")
    elif importlib.util.find_spec(where.partition(".")[0]) is None:
        raise RecipeError(f"{key}: no module {where.partition('.')[0]}: install it, or correct it")
    return (sys.executable, "-P", "-m", "agents.call", path, str(recipe.folder))
