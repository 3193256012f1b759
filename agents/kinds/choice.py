"""From a recipe's [task.agent] to its kind."""

from __future__ import annotations

import os

import agents
import toolwright
from agents.jail.jail import make_jail
from agents.kinds.container import ContainerKind
from agents.kinds.kept import ProcessKind
from agents.kinds.kind import Kind, Site
from agents.kinds.service import ServiceKind
from toolwright.recipe import Agent, Recipe
from toolwright.recipe.agent_program import agent_folders, agent_words


def needs_tmp(rules: Agent) -> bool:
    """Whether the agents' folders have to be in /tmp, where jails show them."""
    return rules.in_process and rules.sandbox != "none"


def kind_of(recipe: Recipe, name: str, rules: Agent, site: Site) -> Kind:
    """The kind of a task's agents. name: the task's. Raises StartError or RecipeError."""
    words = agent_words(recipe, name, rules)
    if rules.kind == "http":
        return ServiceKind(rules, site, os.environ.get(rules.token_env, ""))
    if rules.kind == "container":
        seconds = recipe.shared.each_task[name].limits.seconds
        return ContainerKind(rules, site, words, seconds)
    if rules.sandbox == "none":
        return ProcessKind(rules, words, None, site)
    folders = [*agent_folders(recipe, rules)]
    if rules.kind == "function":
        folders += [folder for one in (agents, toolwright) for folder in one.__path__]
    return ProcessKind(rules, words, make_jail(rules.sandbox, words[0], folders), site, recipe)
