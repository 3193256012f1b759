"""The engine's small world, for SEARL."""

from tests.integration.engine.conftest import codec, world

__all__ = ["codec", "world"]
