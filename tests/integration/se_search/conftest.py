"""The engine's small world, for search agents."""

from tests.integration.engine.conftest import codec, world

__all__ = ["codec", "world"]
