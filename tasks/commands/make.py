"""`tasks make`: a world's corpus and its questions, as files."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from tasks.commands.endings import one_sentence
from tasks.commands.writing import write_new
from tasks.errors import NotMade, UnknownName
from tasks.record import line_of
from tasks.worlds import SPLITS, WORLDS

CORPUS = "corpus.jsonl"


def make(
    world: Annotated[str, typer.Argument(help="a name of `tasks list`")],
    folder: Annotated[Path, typer.Argument(help="where the files go", show_default=False)],
    seed: Annotated[int, typer.Option(help="the same seed makes the same files")] = 0,
) -> None:
    """Make a world: corpus.jsonl in Search-R1's layout, train.jsonl and heldout.jsonl.

    No question of one file is about what a question of the other is about. Then index the corpus
    (toolsvc index build), serve it (toolsvc serve search), and name train.jsonl as a recipe's
    [task] source.
    """
    with one_sentence():
        if world not in WORLDS:
            raise UnknownName(f"no world is called {world!r:.80}: there are {', '.join(WORLDS)}")
        made = import_module(WORLDS[world])
        names = (CORPUS, *(f"{split}.jsonl" for split in SPLITS))
        there = [name for name in names if (folder / name).exists()]
        if there:
            raise NotMade(f"{folder} has {', '.join(there)} already: name another folder")
        count = write_new(folder / CORPUS, map(line_of, made.passages(seed)))
        typer.echo(f"{folder / CORPUS}: {count} passages")
        for split in SPLITS:
            path = folder / f"{split}.jsonl"
            asked = made.questions(split, seed)
            count = write_new(path, (line_of(one.row()) for one in asked))
            typer.echo(f"{path}: {count} questions")
