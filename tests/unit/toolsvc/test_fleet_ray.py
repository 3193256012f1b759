"""Ray's own errors, which end where Ray is asked."""

from __future__ import annotations

import pytest

from toolsvc.errors import StartError
from toolsvc.fleet.ray.cluster import nodes


def test_a_ray_that_does_not_answer_is_one_sentence() -> None:
    with pytest.raises(StartError, match="Ray does not say which nodes it has: System error: "):
        nodes()  # No cluster was connected to.
