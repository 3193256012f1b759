"""The recipe: the TOML file that every process reads, and the models of its shared tables.

`reading` checks what `layers` laid over each other; `faults`, `keys` and `remarks` say what is
wrong with it, what does not count, and what is in force.
"""

from __future__ import annotations

from toolwright.recipe.reading import (
    ENTRY_POINTS,
    SHARED,
    Recipe,
    RecipeError,
    check_all,
    load_recipe,
    read_resolved,
    registered_tables,
)
from toolwright.recipe.shared_tables import (
    ARCHITECTURES,
    TRAINED_VISION_ARCHITECTURES,
    VISION_ARCHITECTURES,
    DynamicSampling,
    ForeignText,
    Limits,
    Overlong,
    Policy,
    Run,
    Sampler,
    Shared,
    TaskTable,
    Tool,
)
from toolwright.recipe.table import Table

__all__ = [
    "ARCHITECTURES",
    "ENTRY_POINTS",
    "SHARED",
    "TRAINED_VISION_ARCHITECTURES",
    "VISION_ARCHITECTURES",
    "DynamicSampling",
    "ForeignText",
    "Limits",
    "Overlong",
    "Policy",
    "Recipe",
    "RecipeError",
    "Run",
    "Sampler",
    "Shared",
    "Table",
    "TaskTable",
    "Tool",
    "check_all",
    "load_recipe",
    "read_resolved",
    "registered_tables",
]
