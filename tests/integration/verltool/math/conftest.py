"""The engine's small world, for VerlTool's mathematics task."""

from tests.integration.engine.conftest import codec, world

__all__ = ["codec", "world"]
