"""What `engine check` says of agents that `agents serve` starts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from engine.offline.check.remarks import WARNING
from toolwright.recipe import Recipe, task_key
from toolwright.recipe.agent_program import agent_words, started_agents


def agent_lines(recipe: Recipe) -> Iterator[str]:
    """A line an agent. Raises RecipeError if its program, a file of it, a folder or its
    sandbox is not there."""
    for name, agent in started_agents(recipe).items():
        key, words = f"{task_key(name)}.agent", agent_words(recipe, name, agent)
        if agent.sandbox == "none":
            yield (
                f'{WARNING}{key}.sandbox = "none": an agent may do what its account may, and reach '
                "any network"
            )
        yield f"{key}: {shlex.join(words)}, at most {agent.at_once} at a time"
