"""What `engine check` says of agents that `agents serve` starts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from engine.offline.check.remarks import WARNING
from toolwright.recipe import Recipe, task_key
from toolwright.recipe.agent_program import agent_words, started_agents


def agent_lines(recipe: Recipe) -> Iterator[str]:
    """A line an agent. Raises RecipeError if a part of it is not there (`agent_words`)."""
    for name, agent in started_agents(recipe).items():
        key, words = f"{task_key(name)}.agent", agent_words(recipe, name, agent)
        if agent.in_process and agent.sandbox == "none":
            yield (
                f'{WARNING}{key}.sandbox = "none": an agent may do what its account may, and reach '
                "any network"
            )
        where = {"http": f"the service {agent.url}", "container": f"the image {agent.image}"}
        said = " ".join(filter(None, (where.get(agent.kind), shlex.join(words))))
        yield f"{key}: {said}, at most {agent.at_once} at a time"
