"""`memory export`, `import` and `copy`: a memory is a thing that people share."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer

from memory.admission import check_work
from memory.commands.endings import Unanswerable, one_sentence
from memory.commands.files import NoFile, python_file, shared, whole
from memory.commands.reading import Store, Version, graph_of, log_of, node_of
from memory.errors import BadWork, NoVersion, Unusable
from memory.graph.changes import from_bytes, read_as
from memory.memory import Memory
from memory.opening import begun, begun_with, open_log, shown
from memory.search.described import TEXTS, joined, parted
from memory.search.embedding import embedder as embedder_of
from memory.store import pages
from memory.types import DELTA
from toolwright.page.text import plain

WHOLE = "memory.json"
MOST_BYTES = 256 << 20
"""Maximum size of a file to import, in bytes: some 100,000 tools."""
Embedder = Annotated[str, typer.Option(help="of a memory that is begun by it")]


def export(
    store: Store,
    folder: Annotated[Path, typer.Argument(help="folder to write; made where it is missing")],
    only: Annotated[
        list[str] | None, typer.Option(help="name of a tool; may be repeated; default: all")
    ] = None,
    version: Version = None,
) -> None:
    """Write each tool as a Python file that `toolsvc serve` takes, and all of them as memory.json.

    The code of a tool is what a model wrote, and `toolsvc serve FILE.py` runs it unconfined: read a
    file before you serve it.
    """
    with one_sentence(), graph_of(store, version) as graph:
        chosen = [node_of(graph, name) for name in only] if only else graph.nodes
        folder.mkdir(parents=True, exist_ok=True)
        if not only:
            _write(folder / WHOLE, whole(graph))
        taken: set[str] = set()
        for node in {one.id: one for one in chosen}.values():
            try:
                text = python_file(node.tool)
            except NoFile as error:
                typer.echo(plain(f"left out: {error}", keep=""), err=True)
                continue
            name = f"tool_{node.name}"
            if name.lower() in taken:  # on many a disk Area.py and area.py are one file
                name = f"{name}-{node.id}"
            taken.add(name.lower())
            _write(folder / f"{name}.py", text)
        typer.echo(f"{len(taken)} tools of version {graph.version}: {folder}")


def _write(file: Path, text: str) -> None:
    """Raises Unanswerable if the file exists: it may be a person's own work."""
    try:
        with file.open("x", encoding="utf-8", newline="") as out:
            out.write(text)
    except FileExistsError as error:
        raise Unanswerable(f"{file} is there already: name an empty folder") from error


def import_tools(
    file: Annotated[Path, typer.Argument(help="a memory.json of `memory export`")],
    store: Store,
    delta: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="cosine from which on two tools are one")
    ] = DELTA,
    embedder: Embedder = "hashing",
) -> None:
    """Bring the tools of an exported memory into another one, through its guards and merging."""
    with one_sentence():
        data = _bytes(file)
        found = shared(data)
        key = f"import/{sha256(data).hexdigest()[:16]}"
        works = list(found.works(key, delta=delta))
        for work in (*works, *found.joins(dict.fromkeys(found.used, ""), key, delta=delta)):
            check_work(work)  # all of them before the first goes in
        kind, text_of = parted(begun(store) or embedder)
        name, make = embedder_of(kind)
        log = open_log(store, embedder=joined(name, text_of))
        try:
            memory = Memory(log, make(), text_of=TEXTS[text_of])
            names: dict[str, str] = {}
            left, before, came = 0, memory.graph.version, False
            for work in works:
                merged = memory.merge_group(work)
                came = merged.version > before or came
                names.update(merged.registered)
                left += len(merged.refused)
                for refused in merged.refused:
                    typer.echo(
                        plain(f"refused: {refused.name}: {refused.reason}", keep=""), err=True
                    )
            for work in found.joins(names, key, delta=delta):
                came = memory.merge_group(work).version > before or came
            graph = memory.graph
            said = (
                f"{len(names)} tools came in, {left} were refused"
                if came
                else f"the {len(names)} tools of this file came in before, and nothing is changed"
            )
            typer.echo(f"{said}; {len(graph.by_id)} tools, version {graph.version}: {shown(store)}")
        finally:
            log.close()


def _bytes(file: Path) -> bytes:
    """Raises BadWork if the file is not a regular file, or too large."""
    if file.exists() and not file.is_file():
        raise BadWork(f"{file} is not a regular file: name a {WHOLE} of `memory export`")
    with file.open("rb") as opened:
        data = opened.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise BadWork(f"{file} has more than the {MOST_BYTES} bytes that an import reads")
    return data


def copy(
    store: Store,
    other: Annotated[str, typer.Argument(help="an empty store: a file, or redis://...#NAME")],
    version: Version = None,
) -> None:
    """Copy a memory as it was at a version, bit for bit, for a run that begins there."""
    with one_sentence():
        if begun(other):
            raise Unanswerable(f"there is a memory at {shown(other)} already: name an empty store")
        with log_of(store) as log:
            found = list(pages(log, 0, version))
            if version is not None and len(found) < version:
                raise NoVersion(f"the memory has versions 0 to {len(found)}, and not {version}")
            into = open_log(other, embedder=begun_with(store))
            try:
                for after, data in enumerate(found):
                    with read_as(after + 1):
                        group = from_bytes(data).group
                    if into.append(group, data, after) != (after + 1, data):
                        raise Unusable(
                            f"change {after + 1} does not stand in {shown(other)} as it was: "
                            "the group came before, or another process writes there"
                        )
            finally:
                into.close()
        typer.echo(f"version {len(found)}: {shown(other)}")
