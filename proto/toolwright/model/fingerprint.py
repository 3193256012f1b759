"""Settings that engine and learner must share before the first group is leased. Pure.

Each makes a fingerprint of its recipe, overrides included. The engine sends its own with the
policy, and the learner compares. Every key of the shared tables is compared unless `OF_THE_PLACE`
names it, so a new key is compared from the start. An address or a timeout may differ between two
machines of one run. The policy's prompts, limits and rewards may not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolwright.recipe import Recipe
from toolwright.recipe.models.shared_tables import Shared

OF_THE_PLACE = frozenset(
    {
        "run.engine",
        "run.folder",  # compared as the folder that it leads to
        "run.traces",
        "policy.model",  # compared as its shape and its tokenizer
        "task.reward_threads",
        "tasks.*.reward_threads",
        "sampler.endpoints",
        "sampler.stream_interval",
        "sampler.timeout_s",
        "sampler.patience_s",
        "tools.*.service",
        "tools.*.serve",
        "tools.*.options",
        "tools.*.tls_ca",
        "tools.*.tls_cert",
        "tools.*.tls_key",
        "tools.*.queue_limit_s",
        "tools.*.lease_s",
        "tools.*.patience_s",
    }
)
"""Keys that may differ between two processes of one run; `*` is any name."""
SHOWN = 80
"""Characters of a value in a sentence."""
_OWN_WORDS = ("protocol_options", "stops", "template")
"""Tables whose keys the recipe's author chooses: one value each."""

Terms = Mapping[str, Any]
"""Values of the recipe by dotted key, as JSON has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The settings and files of one process."""

    terms: Terms
    """See `terms_of`."""
    tokenizer: str
    """Hash of the first policy's tokenizer (`toolwright.model.model_folder`); "" = unknown."""
    shape: str
    """Hash of the first policy's shape; "" = unknown."""
    folder: str
    """The run folder, symbolic links followed."""
    lineages: tuple[str, ...] = ()
    """All lineages of the run from the first on; empty = unknown."""


def terms_of(shared: Shared) -> dict[str, Any]:
    """The settings that both processes must share, by dotted key such as "run.group_size"."""
    found = _flat(shared.model_dump(mode="json"), ())
    named = {f"tools.{name}": True for name in shared.tools}
    return {name: value for name, value in (found | named).items() if not of_the_place(name)}


def fingerprint(
    recipe: Recipe, *, tokenizer: str, shape: str, lineages: tuple[str, ...] = ()
) -> Fingerprint:
    """The fingerprint of a process with this recipe."""
    return Fingerprint(
        terms=terms_of(recipe.counted().shared),
        tokenizer=tokenizer,
        shape=shape,
        folder=str(recipe.run_folder),
        lineages=lineages,
    )


def canonical_terms(terms: Terms) -> str:
    """The terms as JSON text: one text for equal terms."""
    return json.dumps(terms, sort_keys=True, separators=(",", ":"))


def recipe_hash(terms: Terms) -> str:
    """SHA-256 hex of the canonical text."""
    return hashlib.sha256(canonical_terms(terms).encode()).hexdigest()


def difference(engine: Fingerprint, learner: Fingerprint) -> str | None:
    """One sentence with the first difference and the fix; None if the two agree.

    A value that one side does not know is not compared. `run.epochs` is compared as the steps that
    it gives: each side counts the rows at its own start.
    """
    names = {*engine.terms, *learner.terms} - {"run.epochs"} if engine.terms else ()
    epochs = engine.terms.get("run.epochs")
    for name in sorted(names):
        theirs, ours = engine.terms.get(name, _ABSENT), learner.terms.get(name, _ABSENT)
        if theirs != ours:
            if name == "run.steps" and epochs and epochs == learner.terms.get("run.epochs"):
                return (
                    f"run.epochs = {epochs} gives {theirs} steps in the engine and {ours} here: a "
                    "task's file of rows changed between the two starts. Start the learner with "
                    f"--set run.steps={theirs}, or start both again"
                )
            return (
                f"{name} is {_shown(theirs)} in the engine and {_shown(ours)} here: start both "
                "with one recipe and the same --set"
            )
    if engine.tokenizer and learner.tokenizer and engine.tokenizer != learner.tokenizer:
        return (
            f"the tokenizer or chat template of policy.model is {engine.tokenizer[:12]} in the "
            f"engine and {learner.tokenizer[:12]} here: give both the same folder, or copies of it"
        )
    if engine.shape and learner.shape and engine.shape != learner.shape:
        return (
            "the policy that the run begins with has another config.json or other tensors "
            f"({engine.shape[:12]} in the engine, {learner.shape[:12]} here): give both the same "
            "policy.model, or copies of it"
        )
    if engine.folder and engine.folder != learner.folder:
        return (
            f"run.folder is {engine.folder} in the engine and {learner.folder} here: both must see "
            "the run's folder under one path"
        )
    lost = next((one for one in learner.lineages if one not in engine.lineages), None)
    if engine.lineages and lost is not None:
        return (
            f"the newest checkpoint is of lineage {lost}, which the engine's journal does not "
            f"have (its first is {engine.lineages[0]}): restore the journal that belongs to the "
            "checkpoint, or choose a new run.folder"
        )
    return None


_ABSENT = object()


def _shown(value: object) -> str:
    if value is _ABSENT:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _flat(value: Any, path: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict) or (path and path[-1] in _OWN_WORDS):
        return {".".join(path): value}
    found: dict[str, Any] = {}
    for name, inner in value.items():
        found |= _flat(inner, (*path, str(name)))
    return found


def of_the_place(name: str) -> bool:
    """Whether two processes, or two starts, of one run may differ in this dotted key."""
    parts = name.split(".")
    if parts[0] in ("tasks", "tools") and len(parts) > 2:
        last = 2 if parts[0] == "tools" else -1  # options of a tool have keys of their own
        name = f"{parts[0]}.*.{parts[last]}"
    return name in OF_THE_PLACE
