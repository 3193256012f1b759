"""Old name of `toolsvc.plugin.registry`: says what to write now."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(
        f"toolsvc.plugin.built_in has no {name}: subclass `toolsvc.Tool` with `Config` in place of "
        "`Options`, read `self.config`, and write `__init__(self, config, sandbox)` in place of "
        "`make`; the package registers it under `toolwright.tools`"
    )
