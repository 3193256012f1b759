"""The engine's small world, for SQL agents."""

from tests.integration.engine.conftest import codec, world

__all__ = ["codec", "world"]
