"""Module names of earlier versions: code that imports them goes on working through `engine.api`.

A starter folder that was made before the three floors says `engine.protocols.chat:Chat`. The names
that recipes used are public now; any other name of such a module fails and names `engine.api`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

OLD = frozenset(
    {
        "engine.protocols",
        "engine.protocols.actions",
        "engine.protocols.base",
        "engine.protocols.chat",
        "engine.protocols.conversation",
        "engine.protocols.tagged",
        "engine.rewards",
        "engine.rewards.score",
        "engine.sample",
        "engine.sample.keep",
        "engine.text",
        "engine.text.codec",
        "engine.text.cut",
        "engine.text.foreign",
    }
)


class OldNames(MetaPathFinder, Loader):
    """Finds the modules of `OLD`. Comes first: an upgrade may leave empty folders behind."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in OLD:
            return None
        return ModuleSpec(name, self, is_package=any(old.startswith(f"{name}.") for old in OLD))

    def exec_module(self, module: ModuleType) -> None:
        def public(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            api = import_module("engine.api")
            if name not in api.__all__:
                raise AttributeError(
                    f"{module.__name__}.{name} is not public: import from engine.api, which has "
                    + ", ".join(api.__all__)
                )
            return getattr(api, name)

        module.__dict__["__getattr__"] = public
