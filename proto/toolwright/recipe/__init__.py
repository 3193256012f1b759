"""The recipe: the TOML file that every process reads, and the models of its shared tables.

layers.py       merges the files that a recipe extends
assignments.py  overrides of a command line
references.py   `${table.key}` in a value
reading.py      checks the result with the models, and holds it
models/         the shared tables, and the base of every table
diagnostics/    errors in one sentence, and keys that have no effect
open_ports.py   addresses with port 0
"""

from __future__ import annotations

from toolwright.recipe.models.process_table import ProcessTable
from toolwright.recipe.models.shared_tables import (
    ARCHITECTURES,
    MEMORY_ADDRESS,
    TEMPLATE_NAMES,
    TRAINED_VISION_ARCHITECTURES,
    VISION_ARCHITECTURES,
    ForeignText,
    Policy,
    Run,
    Sampler,
    Shared,
    Tool,
)
from toolwright.recipe.models.table import Table
from toolwright.recipe.models.tasks import (
    Branching,
    DynamicSampling,
    Limits,
    MixedTask,
    Overlong,
    TaskTable,
    task_key,
)
from toolwright.recipe.open_ports import is_open, refuse_open_ports
from toolwright.recipe.reading import (
    ENTRY_POINTS,
    SHARED,
    Recipe,
    RecipeError,
    check_all,
    load_recipe,
    read_resolved,
    registered_tables,
    tables_in_force,
)

__all__ = [
    "ARCHITECTURES",
    "ENTRY_POINTS",
    "MEMORY_ADDRESS",
    "SHARED",
    "TEMPLATE_NAMES",
    "TRAINED_VISION_ARCHITECTURES",
    "VISION_ARCHITECTURES",
    "Branching",
    "DynamicSampling",
    "ForeignText",
    "Limits",
    "MixedTask",
    "Overlong",
    "Policy",
    "ProcessTable",
    "Recipe",
    "RecipeError",
    "Run",
    "Sampler",
    "Shared",
    "Table",
    "TaskTable",
    "Tool",
    "check_all",
    "is_open",
    "load_recipe",
    "read_resolved",
    "refuse_open_ports",
    "registered_tables",
    "tables_in_force",
    "task_key",
]
