"""The engine's small world, for search agents; and a process group, for a step of the learner."""

from tests.integration.engine.conftest import codec, world
from tests.integration.learner.conftest import imported, one_rank

__all__ = ["codec", "imported", "one_rank", "world"]
