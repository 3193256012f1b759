"""A page as one file: its modules, style sheets and data in one HTML file that needs no server.

The file fetches nothing, and runs only the script that its hash names. Data stands in a block that
no browser runs; the page's modules put it into the document as text. Modules import each other by
`import { NAME } from "./FILE.js"` alone, and export functions, classes and constants by name.
"""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolwright.page.text import text

WEB = Path(__file__).parent / "web"
"""Modules and style sheets of all pages."""
STYLES = ("colours.css", "style.css", "figures/figures.css", "still.css")
IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


def still(entry: str, *, title: str, data: Mapping[str, Any], pages: Path | None = None) -> str:
    """The file. entry: the module that draws; it reads `data` from the element of that id and draws
    into the element "main". data: JSON values. pages: modules of a package's own, in whose folder
    those of `web` seem to lie. Raises ValueError for a number that is not finite."""
    script = f'"use strict";\n{script_of(entry, [WEB, *([pages] if pages else [])])}'
    style = "".join((WEB / file).read_text(encoding="utf-8") for file in STYLES)
    told = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title>
<style>{style}</style>
</head>
<body>
<main id="main"></main>
<noscript>The script in this file draws its figures. Switch scripts on.</noscript>
<script type="application/json" id="data">{told}</script>
<script>{script}</script>
</body>
</html>
"""


def script_of(entry: str, roots: Sequence[Path]) -> str:
    """One script of a module and all that it imports: each once, after those it imports. entry: the
    module's path below one of the roots, as for all others."""
    names: dict[str, str] = {}
    parts: list[str] = []

    def add(path: str) -> str:
        if path in names:
            return names[path]
        file = next(root / path for root in roots if (root / path).is_file())
        source = file.read_text(encoding="utf-8")
        for found in reversed([*IMPORT.finditer(source)]):
            module = add(posixpath.normpath(posixpath.join(posixpath.dirname(path), found[2])))
            taken = f"const {{{found[1]}}} = {module};"
            source = source[: found.start()] + taken + source[found.end() :]
        exported = ", ".join(found[2] for found in EXPORT.finditer(source))
        names[path] = f"module{len(names)}"
        source = EXPORT.sub(r"\1", source)
        parts.append(
            f"const {names[path]} = (() => {{\n{source}\nreturn {{ {exported} }};\n}})();\n"
        )
        return names[path]

    add(entry)
    return "".join(parts)


def _hash(source: str) -> str:
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    return f"'sha256-{digest}'"
