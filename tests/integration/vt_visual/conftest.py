"""The engine's small world and the real image tool, for the visual recipe."""

from tests.integration.engine.conftest import codec, image_service, world

__all__ = ["codec", "image_service", "world"]
