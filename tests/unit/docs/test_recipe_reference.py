"""docs/hooks/recipe_reference.py writes every key of a table; `make house` compares the page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from tests.support.docs import DOCS
from toolwright.recipe import Table

sys.path.insert(0, str(DOCS / "hooks"))
from recipe_reference import Reference, Section  # type: ignore[import-not-found]

pytestmark = pytest.mark.quick


class Bound(Table):
    """A bound."""

    upper: float = Field(gt=0)
    """Largest value."""


class Base(Table):
    """A table."""

    folder: Path
    """Folder of it."""
    way: Literal["folder", "group"] | None = None
    """Way, or none."""
    unit: Literal["turn", "token"] = "token"
    """Unit."""


class Whole(Base):
    """A table with others in it."""

    share: float = Field(default=1e-6, ge=0, le=1)
    """Share a|b."""
    names: tuple[str, ...] = ()
    """Names."""
    bounds: tuple[Bound, ...] = ()
    """Bounds."""
    other: Bound | None = None
    """Another bound."""


class Silent(Table):
    """A table with a key that nothing describes."""

    key: int = 0


def written(*sections: Section) -> str:
    reference = Reference()
    return "\n".join(line for one in sections for line in reference.write(one))


def test_a_table_has_its_keys_with_types_defaults_and_bounds_and_the_tables_inside() -> None:
    text = written(Section("whole", Whole))
    rows = [line for line in text.splitlines() if line.startswith("|`")]
    assert rows == [
        "|`folder`|required, path|Folder of it.|",
        '|`way`|none, `"folder"`, `"group"`|Way, or none.|',
        '|`unit`|**`"token"`**, `"turn"`|Unit.|',
        r"|`share`|`1e-6`, 0 to 1|Share a\|b.|",
        "|`names`|`[]`, list of text|Names.|",
        "|`upper`|required, number > 0|Largest value.|",
    ]
    assert "### [[whole.bounds]]\n\nA bound." in text


def test_a_key_is_written_once_and_named_where_it_is_inherited() -> None:
    text = written(Section("base", Base), Section("whole", Whole))
    assert "All keys of [`[base]`](#base) count here too." in text
    assert text.count("|`folder`|") == 1


def test_a_key_without_a_docstring_is_refused_by_name() -> None:
    with pytest.raises(SystemExit, match=r"\[silent\] key"):
        written(Section("silent", Silent))
