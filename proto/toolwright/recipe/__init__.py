"""The recipe: the TOML file that every process reads, and the models of its shared tables.

layers.py       merges the files that a recipe extends
assignments.py  overrides of a command line
references.py   `${table.key}` in a value
epochs.py       run.steps from run.epochs
reading.py      checks the result with the models, and holds it
models/         the shared tables, and the base of every table
diagnostics/    errors in one sentence, and keys that have no effect
open_ports.py   addresses with port 0
"""

from __future__ import annotations

from toolwright.recipe.models.process_table import ProcessTable as ProcessTable
from toolwright.recipe.models.shared_tables import AGENTS_ADDRESS as AGENTS_ADDRESS
from toolwright.recipe.models.shared_tables import ARCHITECTURES as ARCHITECTURES
from toolwright.recipe.models.shared_tables import INGRESS_ADDRESS as INGRESS_ADDRESS
from toolwright.recipe.models.shared_tables import MEMORY_ADDRESS as MEMORY_ADDRESS
from toolwright.recipe.models.shared_tables import TEMPLATE_NAMES as TEMPLATE_NAMES
from toolwright.recipe.models.shared_tables import (
    TRAINED_VISION_ARCHITECTURES as TRAINED_VISION_ARCHITECTURES,
)
from toolwright.recipe.models.shared_tables import VISION_ARCHITECTURES as VISION_ARCHITECTURES
from toolwright.recipe.models.shared_tables import ForeignText as ForeignText
from toolwright.recipe.models.shared_tables import Policy as Policy
from toolwright.recipe.models.shared_tables import Run as Run
from toolwright.recipe.models.shared_tables import Sampler as Sampler
from toolwright.recipe.models.shared_tables import Shared as Shared
from toolwright.recipe.models.shared_tables import Tool as Tool
from toolwright.recipe.models.table import Table as Table
from toolwright.recipe.models.tasks import SUBMITTED as SUBMITTED
from toolwright.recipe.models.tasks import Agent as Agent
from toolwright.recipe.models.tasks import Branching as Branching
from toolwright.recipe.models.tasks import DynamicSampling as DynamicSampling
from toolwright.recipe.models.tasks import Limits as Limits
from toolwright.recipe.models.tasks import MixedTask as MixedTask
from toolwright.recipe.models.tasks import Overlong as Overlong
from toolwright.recipe.models.tasks import TaskTable as TaskTable
from toolwright.recipe.models.tasks import task_key as task_key
from toolwright.recipe.open_ports import is_open as is_open
from toolwright.recipe.open_ports import refuse_open_ports as refuse_open_ports
from toolwright.recipe.reading import ENTRY_POINTS as ENTRY_POINTS
from toolwright.recipe.reading import SHARED as SHARED
from toolwright.recipe.reading import Recipe as Recipe
from toolwright.recipe.reading import RecipeError as RecipeError
from toolwright.recipe.reading import check_all as check_all
from toolwright.recipe.reading import load_recipe as load_recipe
from toolwright.recipe.reading import read_resolved as read_resolved
from toolwright.recipe.reading import recipe_from_resolved as recipe_from_resolved
from toolwright.recipe.reading import registered_tables as registered_tables
from toolwright.recipe.reading import tables_in_force as tables_in_force
