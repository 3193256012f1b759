"""Files that come with the package, such as recipes and launchers, in a wheel or a checkout."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parents[1]
_CHECKOUT = _HERE.parents[1]


def packaged(name: str) -> Path:
    """The folder or file `name`, such as "recipes" or "deploy/sglang-cpu". Raises
    FileNotFoundError."""
    for root in (_HERE, _CHECKOUT):
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(f"{name} is not in this installation of Toolwright")
