"""`toolsvc index build`: from a corpus to a folder that the `search` tool serves.

Whatever keeps it from ending well is one sentence on standard error and exit code 1."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from toolsvc.backends.search.manifest import Dense, IndexKind
from toolsvc.commands.endings import one_sentence

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Makes what the search tool searches.",
)


@app.callback()
def _commands() -> None:
    """Keeps `build` a command of its own while it is the only one."""


@app.command()
def build(
    output: Annotated[Path, typer.Option("--output", "--folder", help="folder of the index")],
    corpus: Annotated[
        Path | None,
        typer.Argument(help='JSON lines of {"id", "contents"}, contents "Title"\\ntext'),
    ] = None,
    corpus_option: Annotated[
        Path | None, typer.Option("--corpus", help="the corpus, as an option")
    ] = None,
    kind: Annotated[
        IndexKind | None,
        typer.Option(help="words, vectors, or both; bm25, or with --faiss the kind of that file"),
    ] = None,
    dense: Annotated[Dense, typer.Option(help="the vectors of a hybrid index")] = Dense.HNSW,
    encoder: Annotated[
        Path | None, typer.Option(help="folder of a sentence-transformers model, E5 or MiniLM")
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(help=".npy file, float32 of passages x dimensions, instead of an encoder"),
    ] = None,
    faiss: Annotated[
        Path | None, typer.Option(help="FAISS index of the corpus, made by another program")
    ] = None,
    query_prefix: Annotated[
        str | None, typer.Option(help="text before each query of the encoder, 'query: ' of E5")
    ] = None,
    passage_prefix: Annotated[
        str | None, typer.Option(help="text before each passage of the encoder, 'passage: ' of E5")
    ] = None,
    shard: Annotated[
        int | None, typer.Option(min=1, help="passages encoded between two writes to disk")
    ] = None,
) -> None:
    """Build an index of a corpus.

    Killed and started again with the same arguments it goes on where it was: encoded passages are
    written in shards, and finished parts are not made again. The folder is complete when it holds
    manifest.json, which says what the index was made from; the search tool checks that.

    With --faiss an index that another program made takes the place of the vectors, if it fits the
    corpus and the encoder. The folder holds a hard link to it, or a copy on another file system.
    """
    if (corpus is None) == (corpus_option is None):
        raise typer.BadParameter("give the corpus once", param_hint="CORPUS or --corpus")
    with one_sentence(extra="toolsvc"):
        # Here: the other commands have no need of the packages of search.
        from toolsvc.backends.search.build import SHARD, Order
        from toolsvc.backends.search.build import build as build_index
        from toolsvc.backends.search.index import DENSE_FILE

        order = Order(
            corpus=corpus or corpus_option or Path(),
            folder=output,
            kind=kind,
            dense=dense,
            encoder=encoder,
            vectors=vectors,
            faiss=faiss,
            query_prefix=query_prefix,
            passage_prefix=passage_prefix,
            shard=shard or SHARD,
        )
        with _Bars() as bars:
            manifest = build_index(order, bars.show)
        print(f"{output} holds {manifest.corpus.passages} passages, {manifest.kind}")
        if faiss is not None:
            linked = (output / DENSE_FILE).samefile(faiss)
            print(f"{faiss} was {'linked' if linked else 'copied'}, not built again")


class _Bars:
    """One bar a step, on standard error."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description:20}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._steps: dict[str, TaskID] = {}

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, step: str, done: int, total: int) -> None:
        if step not in self._steps:
            self._steps[step] = self._progress.add_task(step, total=total)
        self._progress.update(self._steps[step], completed=done)
