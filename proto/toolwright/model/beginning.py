"""The weights that a run begins with: policy.model, or those of the run that it was forked from.

`engine serve RECIPE --fork RUN` leaves the choice in the run folder, where the learner finds it:
both must begin with the same weights.
"""

from __future__ import annotations

import json
from pathlib import Path

from toolwright.recipe import Recipe, RecipeError

FILE_NAME = "forked.json"


def first_policy(recipe: Recipe) -> Path:
    """The Hugging Face folder of step 0. Raises RecipeError if a fork's file cannot be read."""
    file = recipe.run_folder / FILE_NAME
    try:
        return Path(json.loads(file.read_text(encoding="utf-8"))["weights"])
    except FileNotFoundError:
        return recipe.resolve(recipe.shared.policy.model)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecipeError(
            f"{file} does not say which weights the run began with: {error!r}"
        ) from error


def leave_fork(recipe: Recipe, *, run: Path, version: str, weights: Path) -> None:
    """Writes down that the run begins with `weights`, version `version` of the run in `run`."""
    recipe.run_folder.mkdir(parents=True, exist_ok=True)
    said = {"run": str(run), "version": version, "weights": str(weights)}
    (recipe.run_folder / FILE_NAME).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
