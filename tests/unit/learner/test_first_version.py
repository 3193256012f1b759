"""The version with which a learner begins: new lineages leave the version of the weights."""

from __future__ import annotations

import pytest

from learner.intake.first_version import FirstVersion, first_version
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick


def v(text: str) -> WeightVersion:
    return WeightVersion.parse(text)


@pytest.mark.parametrize(
    ("saved", "newest", "found"),
    [
        (None, "a.0", FirstVersion(version=v("a.0"), served=True)),
        (None, "a.2", FirstVersion(version=v("new.0"), parent=v("a.0"))),
        ("a.2", "a.2", FirstVersion(version=v("a.2"))),
        ("a.2", "a.1", FirstVersion(version=v("a.2"))),
        ("a.2", "a.3", FirstVersion(version=v("new.2"), parent=v("a.2"))),
        ("a.2", "b.1", FirstVersion(version=v("new.2"), parent=v("a.2"))),
        ("a.2", "b.2", FirstVersion(version=v("new.2"), parent=v("a.2"))),
    ],
)
def test_a_lineage_opens_where_the_engine_has_other_weights(
    saved: str | None, newest: str, found: FirstVersion
) -> None:
    begun = v(saved) if saved else None
    assert first_version(begun, v(newest), lambda: "new") == found
