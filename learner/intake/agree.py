"""Joins a run at the engine after a comparison of recipe, tokenizer, policy and folder.

The comparison comes first: a learner of another recipe must not end the learner that trains.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from learner.errors import MismatchError, ModelError
from learner.intake.client import EngineClient, Served
from toolwright.model.fingerprint import Fingerprint, difference, fingerprint
from toolwright.model.model_folder import ModelFolderError, shape_hash, tokenizer_hash
from toolwright.recipe import Recipe
from toolwright.types import WeightVersion


def join(
    client: EngineClient, recipe: Recipe, source: Path, *, lineage: str, say: Callable[[str], None]
) -> WeightVersion | None:
    """The engine's newest version; None if nothing was published yet.

    source: the policy that the run begins with. lineage: the newest checkpoint's, empty without a
    checkpoint. Raises MismatchError with the first difference, and TakenError if another learner
    joined at the same instant.
    """
    mine = _own(recipe, source, lineage, say)
    if not _compare(client.served(), mine, client.address):
        say(
            f"the engine at {client.address} does not report its recipe: recipe, tokenizer and "
            "policy are not compared"
        )
    joined = client.join()
    _compare(joined, mine, client.address)  # another engine may have come in between
    return joined.version


def _compare(served: Served, mine: Fingerprint, address: str) -> bool:
    """False if the engine reports nothing to compare. Raises MismatchError with a difference."""
    if served.fingerprint is None:
        return False
    wrong = difference(served.fingerprint, mine)
    if wrong is not None:
        raise MismatchError(f"the engine at {address} serves another run: {wrong}")
    return True


def _own(recipe: Recipe, source: Path, lineage: str, say: Callable[[str], None]) -> Fingerprint:
    policy = recipe.shared.policy
    try:
        tokenizer = tokenizer_hash(recipe.resolve(policy.model), policy.template)
    except ModelFolderError as error:
        say(f"the tokenizer is not compared with the engine's: {error}")
        tokenizer = ""
    try:
        shape = shape_hash(source)
    except ModelFolderError as error:
        raise ModelError(f"policy.model: {error}") from error
    return fingerprint(
        recipe,
        tokenizer=tokenizer,
        shape=shape,
        lineages=(lineage,) if lineage else (),
    )
