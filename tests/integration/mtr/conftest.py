"""The engine's small world, for MTR's agent."""

from tests.integration.engine.conftest import codec, world

__all__ = ["codec", "world"]
