"""Keys of outside attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serving.ingress.keys import Keys, KeyUse

pytestmark = pytest.mark.quick

KEYS = Keys(b"secret")
NAME = "g0000012-3/b1r0a0"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_a_key_names_its_attempt_and_fits_a_path(name: str) -> None:
    for use in KeyUse:
        key = KEYS.key(name, use)
        assert KEYS.attempt(key, *KeyUse) == name
        assert set(key) <= set("-_.") | {chr(one) for one in range(128) if chr(one).isalnum()}


def test_a_key_is_for_one_use_of_one_run() -> None:
    key = KEYS.key(NAME)
    assert KEYS.attempt(key, KeyUse.CALLS) == NAME
    assert KEYS.attempt(key, KeyUse.REWARD) is None
    assert KEYS.attempt("twr" + key.removeprefix("tw"), KeyUse.REWARD) is None
    assert Keys(b"another").attempt(key, KeyUse.CALLS) is None


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.integers(0, 60),
    st.characters(exclude_categories=["Cs"]),
)
def test_a_changed_key_is_no_key(text: str, place: int, other: str) -> None:
    key = KEYS.key(NAME)
    changed = key[:place] + other + key[place + 1 :]
    assert (KEYS.attempt(changed, KeyUse.CALLS) is not None) == (changed == key)
    assert KEYS.attempt(text, *KeyUse) is None
