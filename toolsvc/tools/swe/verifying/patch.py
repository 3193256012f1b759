"""The test patch of a verification: `tests.patch` beside its settings; pure.

Sets of the SWE-bench family publish the hidden tests as a patch of the repository. It is applied in
a box that no policy has seen, before the submission arrives. Its files are the verification's own.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection

IN_BOX = ".toolwright-tests.patch"
"""In the fresh box, until it is applied."""


def application() -> str:
    """A command that applies the patch exactly, or fails, and removes it."""
    return (
        f"if command -v git > /dev/null; then git apply --whitespace=nowarn {IN_BOX}; "
        f"else patch --batch --forward --fuzz=0 -p1 -i {IN_BOX} > /dev/null; fi && rm -- {IN_BOX}"
    )


def archive_of(paths: Collection[str]) -> str:
    """A command that writes an archive of the existing files to standard output, for
    `Archives.read`."""
    words = " ".join(shlex.quote(path) for path in sorted(paths))
    return (
        f'for f in {words}; do if [ -e "$f" ] || [ -L "$f" ]; then printf "%s\\0" "$f"; fi; done | '
        "tar --create --file=- --format=pax --null --files-from=-"
    )
