"""Worlds: a corpus of passages and questions that it answers, made here, the same for a seed.

A world is a module with two functions:

    passages(seed)           -> {"id", "contents"} of each passage, in Search-R1's layout
    questions(split, seed)   -> Record of each question, or what has its `row()`; split is "train"
                                or "heldout"

and a line in WORLDS. `tasks make` writes its files.

- atlas.py, encyclopedia.py: the worlds; relations.py and names.py are the encyclopedia's words
- questions.py, rounds.py: questions of a recipe's toy world as endless streams of tasks
- demonstrations.py: conversations that a tiny policy is warmed up on
"""

from __future__ import annotations

from collections.abc import Mapping

WORLDS: Mapping[str, str] = {
    "atlas": "tasks.worlds.atlas",
    "encyclopedia": "tasks.worlds.encyclopedia",
}
"""Module by name; the first sentence of its docstring is what `tasks list` says."""

SPLITS = ("train", "heldout")
