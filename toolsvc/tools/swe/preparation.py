"""Commands that make a box ready: before the policy's first call, and before its tests; pure.

Invariants
- The policy's box and the box of the verdict get the same setup. So nothing that the setup writes
  is taken for the policy's.
- What a verification hides leaves the policy's box alone; the box of the verdict keeps it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

_ACTIVATE = """\
for e in {folders}; do if [ -d "$e/bin" ]; then export PATH="$e/bin:$PATH"
if [ -d "$e/conda-meta" ]; then export CONDA_PREFIX="$e" CONDA_DEFAULT_ENV="${{e##*/}}"
else export VIRTUAL_ENV="$e"; fi; break; fi; done; unset e
"""
_REMOVE = """\
rm -rf -- {paths}
for p in {paths}; do if [ -e "$p" ] || [ -L "$p" ]; then echo "$p is still there"; exit 1; fi; done
"""
_ONE_COMMIT = """\
find . -name .git -prune -exec rm -rf {} + || exit 1
if command -v git > /dev/null; then
git() { command git -c safe.directory='*' -c user.name=agent -c user.email=agent@localhost \
-c commit.gpgsign=false "$@"; }
git init -q . && git add -A && git commit -q --no-verify --allow-empty -m 'The tree of the task' \
|| exit 1
fi
"""


def activation(folders: Sequence[str]) -> str:
    """Lines of bash that activate the first of these virtual or conda environments that is in the
    box, as its `activate` does; "" without folders."""
    return _ACTIVATE.format(folders=" ".join(map(_quoted, folders))) if folders else ""


def hiding(paths: Sequence[str], *, history: bool) -> str:
    """Lines of bash that remove the paths, which are absolute or relative to the repository.
    `history`: put one commit of the tree in place of the repository's commits. The lines fail if a
    path stays."""
    removing = _REMOVE.format(paths=" ".join(map(_quoted, paths))) if paths else ""
    return removing + (_ONE_COMMIT if history else "")


def _quoted(path: str) -> str:
    """For bash; a home folder stays one."""
    if path.startswith("~/"):
        return f"~/{shlex.quote(path[2:])}"
    return shlex.quote(path)
