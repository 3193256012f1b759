"""What a variation changes: in values as the processes read them, defaults included. Pure.

Every registered table counts, also one of a process that the console knows nothing of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from console.record.resolved import dotted
from toolwright.model.fingerprint import of_the_place
from toolwright.recipe import Recipe, tables_in_force

Values = Mapping[str, str]
"""By dotted key, as JSON."""
Changes = Mapping[str, tuple[str, str]]
"""By dotted key: the base's value and the variation's; "" for an absent one."""

_WARM_UP = ("policy", "sft", "render", "console.prepare")
"""What a warm-up is made of, whatever else it reads."""
_AFTER_RENDERING = (
    *("task.source", "task.reward", "task.reward_options", "task.reward_per_group"),
    *("task.reward_seconds", "task.reward_threads", "task.group_hook", "task.group_hook_options"),
    *("task.mask_overlong", "task.mask_void", "task.exclude_masked_from_baseline"),
    *("task.dynamic_sampling", "task.overlong", "task.shuffle", "task.limits"),
    "task.tool_rewards",
)
"""Keys of [task] that conversations are not rendered by; a new key is taken for one that they
are."""
_BUDGET = ("run.steps", "run.groups_per_step", "run.group_size", "task.limits")
_DATA = ("task.source", "task.shuffle")
_EVALUATION = ("engine.evaluation",)
_REWARD = ("task.reward", "task.reward_options", "task.reward_per_group", "task.overlong")


def values_of(recipe: Recipe) -> Values:
    """Values of the shared tables, of the recipe's tables, and of tables with defaults alone."""
    found = dict(dotted(recipe.counted().shared.model_dump(mode="json")))
    for name, table in tables_in_force(recipe):
        found |= dotted(table.model_dump(mode="json"), (name,))
    return {
        key: value for key, value in found.items() if not _is_under(key, ("console.ablations",))
    }


def changes(base: Values, own: Values) -> Changes:
    """What is not the same, by key."""
    keys = sorted(key for key in {*base, *own} if base.get(key) != own.get(key))
    return {key: (base.get(key, ""), own.get(key, "")) for key in keys}


def of_the_learning(values: Values) -> Values:
    """Without what may change between two starts of one run: addresses, what is shown."""
    return {
        key: value
        for key, value in values.items()
        if key == "policy.model"
        or not (of_the_place(key) or _is_under(key, ("console", "memory.address")))
    }


def keeps_warm_up(found: Changes, *, rendered: bool) -> bool:
    """Whether [sft] makes of them what it makes of the base. rendered: its conversations are made
    by [render], which reads the protocol and its tools."""
    touched = [*_WARM_UP, *(("task", "tools") if rendered else ())]
    return not any(
        _is_under(key, touched) and not _is_under(key, _AFTER_RENDERING) for key in found
    )


def unfair(found: Changes, *, by_part: bool) -> Iterator[str]:
    """Why rows cannot be compared as they stand, a sentence for each reason. by_part: a part of
    the reward is what is compared."""
    reasons = (
        (_BUDGET, "its budget is not the base's"),
        (_DATA, "its questions are not the base's"),
        (_EVALUATION, "it is not measured as the base is"),
        (
            () if by_part else _REWARD,
            "its reward is not the base's: name a part that both have in console.ablate_by",
        ),
    )
    for keys, why in reasons:
        named = [key for key in found if _is_under(key, keys)]
        if named:
            yield f"changes {', '.join(named)}: {why}"


def _is_under(key: str, tables: Iterable[str]) -> bool:
    return any(key == table or key.startswith(f"{table}.") for table in tables)
