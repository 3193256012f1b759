"""The engine's public names, and those of earlier versions, which lead to the same objects."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine import api
from engine.core.tasks import SourceIdentity
from engine.serving.journal.identity import tasks_identity
from toolwright.imports import load_object, recorded

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("old", "public"),
    [
        ("engine.protocols.chat:Chat", api.Chat),
        ("engine.protocols.conversation:nothing_done", api.nothing_done),
        ("engine.protocols.tagged:Tagged.decide", api.Tagged.decide),
        ("engine.rewards:Score", api.Score),
        ("engine.sample.keep:rewarded", api.rewarded),
        ("engine.text.foreign:OwnText", api.OwnText),
        ("engine.types:View", api.View),
    ],
)
def test_an_earlier_name_is_the_public_object(old: str, public: object, tmp_path: Path) -> None:
    assert load_object(old, tmp_path) is public


def test_a_name_that_was_never_public_fails_with_the_new_module() -> None:
    with pytest.raises(ImportError, match="cannot import name '_tags'"):
        from engine.protocols.tagged import _tags  # type: ignore[import-not-found]  # noqa: F401
    with pytest.raises(AttributeError, match=r"import from engine\.api, which has .*Tagged"):
        assert import_module("engine.protocols.tagged")._tags


@pytest.mark.parametrize("old", ["protocols.chat:Chat", "protocols.tagged:Tagged"])
def test_a_run_that_recorded_the_earlier_spelling_goes_on(old: str) -> None:
    """Journals, evaluations and warm policies compare spellings."""
    assert recorded(f"engine.api:{old.rpartition(':')[2]}") == f"engine.{old}"
    assert recorded(f"engine.{old}") == f"engine.{old}"
    drawn = SourceIdentity(name="a.jsonl", sha256="0" * 64, seed=0, shuffle=False)
    first, second = (
        tasks_identity(
            SimpleNamespace(
                each_task={"": SimpleNamespace(protocol=spelling, protocol_options={})}, tasks={}
            ),  # type: ignore[arg-type]
            {"": drawn},
        )
        for spelling in (f"engine.{old}", f"engine.api:{old.rpartition(':')[2]}")
    )
    assert first == second
    assert first["protocol"] == f"engine.{old} {{}}"
