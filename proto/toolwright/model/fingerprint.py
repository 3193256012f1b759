"""What engine and learner must agree on before the first group is leased. Pure.

Both make a fingerprint of the recipe that they were started with, overrides included; the engine
sends its own with the policy, the learner compares. Compared is every key of the shared tables
unless `OF_THE_PLACE` names it, so that a new key is compared from its first day. An address or a
time to wait may differ between two machines of one run; what the policy is asked, shown, allowed
and rewarded with may not.
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
    """What a process was started with.

    terms: see `terms_of`. tokenizer, shape: hashes of `toolwright.model.model_folder` over the
    policy that the run begins with, empty where they are not known. folder: the run folder,
    symbolic links followed. lineages: all of the run's, the first one first; empty where none is
    known.
    """

    terms: Terms
    tokenizer: str
    shape: str
    folder: str
    lineages: tuple[str, ...] = ()


def terms_of(shared: Shared) -> dict[str, Any]:
    """What both processes must have the same, by dotted key ("run.group_size")."""
    found = _flat(shared.model_dump(mode="json"), ())
    named = {f"tools.{name}": True for name in shared.tools}
    return {name: value for name, value in (found | named).items() if not of_the_place(name)}


def fingerprint(
    recipe: Recipe, *, tokenizer: str, shape: str, lineages: tuple[str, ...] = ()
) -> Fingerprint:
    """Of a process with this recipe."""
    return Fingerprint(
        terms=terms_of(recipe.shared),
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
    """The first thing in which the two differ and the mend, one sentence; None where none does.

    What one side does not know is not compared.
    """
    for name in sorted({*engine.terms, *learner.terms} if engine.terms else ()):
        theirs, ours = engine.terms.get(name, _ABSENT), learner.terms.get(name, _ABSENT)
        if theirs != ours:
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
            f"the newest checkpoint is of lineage {lost}, of which the engine's journal knows "
            f"nothing (its first is {engine.lineages[0]}): restore the journal that belongs to the "
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
        name = f"{parts[0]}.*.{parts[-1]}"
    return name in OF_THE_PLACE
