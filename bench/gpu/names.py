"""Names the project to importlib.metadata without installing it: `names.py ROOT SITE`.

For a machine without a network, on which the build back end is missing. Standard library only.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def write(root: Path, site: Path) -> None:
    """Leaves the project's metadata and entry points in `site`."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = site / f"{project['name']}-{project['version']}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        encoding="utf-8",
    )
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
