"""Lets the site hold what its pages link to beyond docs/: READMEs, the code's map, contracts.

A path of the repository has one place on the site: docs/X is X, all else lies under `repository/`.
So a link is written once, as GitHub reads it, and followed in both places. A link that leads to
nothing in the repository is left as it is, and the strict build refuses it. A file beyond docs/
that no page links to is not on the site.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
BEYOND = "repository/"
OWN = ("README.md", "ARCHITECTURE.md", "SPECIFICATION.md", "CONTRIBUTING.md", "deploy/README.md")
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)(?=[#)])")
FENCE = re.compile(r"^(?P<fence>`{3,})[^`\n]*\n.*?^(?P=fence)\s*$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^(- |\d+\. )")


def on_config(config: MkDocsConfig) -> None:
    """Recipes and the repository's own pages stand behind the pages of docs/ in the navigation."""
    recipes = [{title(path): place(path)} for path in recipe_pages()]
    contracts = [{Path(path).name: place(path)} for path in contract_files()]
    pages: list[Any] = [{title(path): place(path)} for path in OWN]
    # `mkdocs serve` may hand over a configuration that has them.
    names = {name for entry in config.nav or [] for name in entry}
    if config.nav and "Recipes" not in names:
        config.nav += [{"Recipes": recipes}, {"Repository": [*pages, {"Contracts": contracts}]}]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the repository's own pages, and all that pages reach by links."""
    waiting = [*recipe_pages(), *contract_files(), *OWN]
    shown = {place(path) for path in waiting}
    for file in files.documentation_pages():
        waiting += targets(file.content_string, path_of(file.src_uri))
    while waiting:
        path = waiting.pop()
        uri = place(path)
        if not uri.startswith(BEYOND) or uri in files.src_uris:
            continue
        text = page_of(path)
        file = File.generated(config, uri, content=text)
        file.inclusion = InclusionLevel.INCLUDED if uri in shown else InclusionLevel.NOT_IN_NAV
        files.append(file)
        waiting += targets(text, path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of the repository become the site's, and lists are as Python-Markdown reads them."""
    here = path_of(page.file.src_uri)

    def follow(link: re.Match[str]) -> str:
        path = leads_to(link[1], here)
        if path is None:
            return link[1]
        return os.path.relpath(place(path), os.path.dirname(page.file.src_uri))

    return outside_of_fences(lambda text: LINK.sub(follow, indented(text)), markdown)


def place(path: str) -> str:
    """Where a path of the repository lies on the site, relative to its sources."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return f"{BEYOND}toolwright.md"  # README.md would be the page of the folder
    return BEYOND + (path if path.endswith(".md") else f"{path}.md")


def path_of(uri: str) -> str:
    """The repository's path of a page: `place` undone."""
    if not uri.startswith(BEYOND):
        return f"docs/{uri}"
    path = uri.removeprefix(BEYOND)
    if path == "toolwright.md":
        return "README.md"
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def leads_to(link: str, here: str) -> str | None:
    """The repository's path that a link leads to, for a folder its README. None: to nothing."""
    path = os.path.normpath(os.path.join(os.path.dirname(here), link))
    if path.startswith("..") or not (ROOT / path).exists():
        return None
    return f"{path}/README.md" if (ROOT / path / "README.md").exists() else path


def targets(text: str, here: str) -> Iterator[str]:
    for link in LINK.findall(FENCE.sub("", text)):
        if path := leads_to(link, here):
            yield path


def page_of(path: str) -> str:
    """The text of a page: a README as it is, a folder as a list of its files, a file as a block."""
    file = ROOT / path
    if path.endswith(".md"):
        return file.read_text(encoding="utf-8")
    if file.is_dir():
        inside = sorted(entry.name for entry in file.iterdir() if entry.is_file())
        return "\n".join(
            [f"# {path}/", "", *(f"- [{name}]({file.name}/{name})" for name in inside)]
        )
    language = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".proto": "protobuf"}
    text = file.read_text(encoding="utf-8")
    return f"# {path}\n\n`````{language.get(file.suffix, 'text')}\n{text}\n`````\n"


def recipe_pages() -> list[str]:
    """READMEs of recipes, that of all of them first."""
    found = [*ROOT.glob("recipes/README.md"), *sorted(ROOT.glob("recipes/*/README.md"))]
    found += sorted(ROOT.glob("recipes/*/*/README.md"))
    return [str(path.relative_to(ROOT)) for path in found]


def contract_files() -> list[str]:
    return [
        str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("proto/toolwright/**/*.proto"))
    ]


def title(path: str) -> str:
    """A README is called as its folder is."""
    folder, name = os.path.split(path)
    return folder.removeprefix("recipes/") if folder and folder != "recipes" else name


def outside_of_fences(change: Callable[[str], str], markdown: str) -> str:
    parts, end = [], 0
    for block in FENCE.finditer(markdown):
        parts += [change(markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(markdown[end:])])


def indented(text: str) -> str:
    """What belongs to a list's item stands four columns in; GitHub takes the item's own column."""
    lines, more = [], 0
    for line in text.split("\n"):
        if item := ITEM.match(line):
            more = 4 - len(item[0])
        elif line.strip() and not line.startswith("  "):
            more = 0
        lines.append(" " * more + line if line.startswith("  ") else line)
    return "\n".join(lines)
