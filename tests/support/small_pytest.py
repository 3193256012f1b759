"""pytest as files that another Python of this machine can run, without its plugins."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

PYGMENTS = {
    "pygments/__init__.py": (),
    "pygments/lexer.py": ("Lexer",),
    "pygments/formatters/terminal.py": ("TerminalFormatter",),
    "pygments/lexers/diff.py": ("DiffLexer",),
    "pygments/lexers/python.py": ("PythonLexer",),
}
"""What pytest imports of pygments, and does not use without a terminal."""


def copy_pytest(target: Path) -> None:
    """Compiled, since a session keeps nothing that Python compiles."""
    target.mkdir()
    for name in ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging"):
        spec = find_spec(name)
        assert spec.origin is not None
        if spec.submodule_search_locations is None:
            shutil.copy(spec.origin, target)
        else:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(Path(spec.origin).parent, target / name, ignore=ignored)
    (target / "pluggy-1.dist-info").mkdir()
    (target / "pluggy-1.dist-info" / "METADATA").write_text(
        "Name: pluggy\nVersion: 1", encoding="utf-8"
    )
    for path, names in PYGMENTS.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(
            "".join(f"class {name}: pass\n" for name in names), encoding="utf-8"
        )
    compiled = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
    subprocess.run(["/usr/bin/python3", *compiled, target], check=True)
