"""`toolwright init`: the recipes that come with the package, and a copy of one to begin with.

Invariants
- Every folder under `recipes/` with a recipe.toml or a chat.toml is listed, and so is one in a
  family's folder (`verltool/math`); nothing is listed by hand.
- What a recipe's runs made (its run folder, models, warm policies) and caches are not copied.
- A recipe that uses files of another one names the command that copies that one beside it.
- A folder with something in it is never written into.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from console.asked.setup import beside
from console.errors import ConsoleError, exit_on_error
from console.machine import sampler_home
from toolwright.process.packaged import packaged

RECIPES = ("recipe.toml", "chat.toml")
"""Main files of a recipe's folder. It has one of them or both; the first is the one to run."""
FOLDERS = ("*", "*/*")
"""Where recipes lie below `recipes/`: by themselves, or in the folder of a family."""
_NEIGHBOUR = re.compile(r"(?<![\w./])\.\./(\w+)")
MADE = (("run", "folder"), ("sft", "output"), ("render", "output"))
"""Keys of a recipe that name what a run makes, beside `makes` under [[console.prepare]]."""


class Refused(ConsoleError):
    """The words do not fit; nothing was written."""

    status = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A recipe of the package; `name` is its folder's path below `recipes/`, `about` the first
    paragraph of its README."""

    name: str
    folder: Path
    about: str


def init(
    name: Annotated[
        str | None, typer.Argument(help="a recipe of the package; left out, all are listed")
    ] = None,
    folder: Annotated[
        Path | None, typer.Argument(help="a new or empty folder", show_default=False)
    ] = None,
) -> None:
    """Copy a recipe's folder to begin a run of your own, or list the recipes.

    A recipe's folder stands alone: the recipe, its questions, tools and reward, and a README that
    says what to replace. `starter` is the smallest, `outside` trains an agent that you have.
    """
    with exit_on_error():
        if name is None:
            for line in listing(known()):
                typer.echo(line)
            return
        if folder is None:
            raise Refused(f"name the new folder as well: toolwright init {name} my-run")
        copy(chosen(name), folder)
    for line in what_now(folder):
        typer.echo(line)


def known() -> list[Known]:
    """By name; `starter` first."""
    recipes = packaged("recipes")
    folders = [folder for way in FOLDERS for folder in recipes.glob(way) if _is_recipe(folder)]
    found = [
        Known(
            name=folder.relative_to(recipes).as_posix(),
            folder=folder,
            about=_about(folder / "README.md"),
        )
        for folder in folders
        if not _is_recipe(folder.parent)  # what lies in a recipe's folder is part of it
    ]
    return sorted(found, key=lambda one: (one.name != "starter", one.name))


def listing(recipes: list[Known]) -> Iterator[str]:
    """A line each."""
    width = max((len(one.name) for one in recipes), default=0)
    for one in recipes:
        yield f"{one.name:{width}}  {one.about}"
    yield ""
    yield f"{'':{width}}  toolwright init starter my-run  copies one"
    yield f"{'':{width}}  toolwright init outside my-run  copies one that trains an agent of yours"


def chosen(name: str) -> Known:
    """Raises Refused for an unknown name."""
    recipes = {one.name: one for one in known()}
    if name not in recipes:
        near = [one for one in recipes if one.endswith(f"/{name}")]
        near += get_close_matches(name, recipes, n=1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise Refused(f"there is no recipe {name!r}{meant}; there are {', '.join(recipes)}")
    return recipes[name]


def copy(recipe: Known, folder: Path) -> None:
    """Refused for a folder that is not empty; ConsoleError where it cannot be written."""
    made = set(_made(recipe.folder))

    def left_out(directory: str, names: list[str]) -> set[str]:
        here = Path(directory).resolve()
        return {name for name in names if here / name in made or _is_cache(name)}

    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise Refused(f"{folder} is not empty: name a new folder")
        if folder.exists() and not folder.is_dir():
            raise Refused(f"{folder} is a file: name a new folder")
        shutil.copytree(
            recipe.folder,
            folder,
            ignore=left_out,
            # A package's files may be read-only; a copy is there to be changed.
            copy_function=shutil.copyfile,
            dirs_exist_ok=True,
        )
    except (OSError, shutil.Error) as error:
        raise ConsoleError(f"{folder} cannot be written: {error}") from error


def what_now(folder: Path) -> Iterator[str]:
    """The next commands."""
    name = next((name for name in RECIPES if (folder / name).exists()), RECIPES[0])
    file = shlex.quote(str(folder / name))
    yield f"{folder / 'README.md'} says what to replace first. Next:"
    for other in _neighbours(folder):
        beside_it = shlex.quote(str(folder.parent / other))
        yield f"  toolwright init {other} {beside_it}    # it uses files of that one"
    if sampler_home.find() is None:
        yield "  toolwright install-sampler    # once: SGLang for this machine's CPU"
    yield f"  toolwright run {file}"


def _is_recipe(folder: Path) -> bool:
    return any((folder / name).is_file() for name in RECIPES)


def _about(readme: Path) -> str:
    """The first paragraph under the title."""
    try:
        paragraphs = readme.read_text(encoding="utf-8").split("\n\n")
    except OSError:
        return ""
    texts = (" ".join(part.split()) for part in paragraphs if not part.lstrip().startswith("#"))
    return next(texts, "")


def _made(folder: Path) -> Iterator[Path]:
    """What runs of the recipes in a folder make there."""
    for file in folder.glob("*.toml"):
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
        prepare = _table(tables, "console").get("prepare", [])
        names = [_table(tables, table).get(key) for table, key in MADE]
        for name in (*names, *(one["makes"] for one in prepare)):
            if name:
                yield (folder / name).resolve()
        if names[0]:
            yield beside((folder / names[0]).resolve())


def _neighbours(folder: Path) -> list[str]:
    """Recipes whose folders a recipe's files name as ../NAME, and that are not there."""
    texts = (file.read_text(encoding="utf-8") for file in folder.glob("*.toml"))
    named = {name for text in texts for name in _NEIGHBOUR.findall(text)}
    ours = {one.name for one in known()}
    return sorted(name for name in named & ours if not (folder.parent / name).exists())


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = tables.get(name, {})
    return found


def _is_cache(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__" or name.endswith(".pyc")
