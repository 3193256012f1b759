"""Several tasks in one recipe: what [task] says for all of them, and whose turn in a batch is.

`[tasks.NAME]` is a [task] of its own. What it leaves out is as in [task]; tables in it are laid
over those of [task] key by key. Options belong to the function that they are for: where a task
names another protocol, reward or hook, those of [task] do not count for it. Pure; knows no models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from toolwright.recipe.layers import merged

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "protocol": ("protocol_options",),
    "reward": ("reward_options", "reward_per_group"),
    "group_hook": ("group_hook_options",),
}
"""Keys that say nothing without the function before them."""
NAMED = ("source", "reward")
"""What every task needs, and [task] need not say where each of them does."""


def laid_out(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The shared tables with every [tasks.NAME] complete. Those that hold what is no table are left
    as they are: their models say so."""
    own, common = tables.get("tasks"), tables.get("task", {})
    if not isinstance(own, Mapping) or not own or not isinstance(common, Mapping):
        return dict(tables)
    return {
        **tables,
        "task": {**dict.fromkeys(NAMED, ""), **common},
        "tasks": {
            name: _laid_over(common, task) if isinstance(task, Mapping) else task
            for name, task in own.items()
        },
    }


def _laid_over(common: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    foreign = {option for key, own in OPTIONS.items() if key in task for option in own}
    return merged({key: value for key, value in common.items() if key not in foreign}, task)


def allotment(groups: int, shares: Sequence[float]) -> list[int]:
    """How many of `groups` each share gets, by largest remainders: they add up to `groups`, and of
    equal remainders the earlier one counts more. Shares are relative to their sum."""
    exact = [Fraction(str(share)) for share in shares]
    quotas = [groups * share / sum(exact) for share in exact]
    given = [int(quota) for quota in quotas]
    order = sorted(range(len(shares)), key=lambda place: given[place] - quotas[place])
    for place in order[: groups - sum(given)]:
        given[place] += 1
    return given
