"""Ids of traces: the same for everybody who knows the names, and unlike for unlike names."""

from __future__ import annotations

import hashlib
import re
import subprocess

from hypothesis import given
from hypothesis import strategies as st

from toolwright.tracing.ids import call_span, span_id, trace_id, trajectory_of

RUN, TRAJECTORY = "8f14e45fceea167a5a36dedd4bea2543", "g0000012-3"


def test_an_id_is_what_the_docstring_says_so_that_other_languages_can_make_it():
    """As `printf 'trace\\n%s\\n%s' RUN TRAJECTORY | sha256sum` begins."""
    digest = subprocess.run(
        ["sha256sum"],
        input=f"trace\n{RUN}\n{TRAJECTORY}".encode(),
        capture_output=True,
        check=True,
    ).stdout.decode()
    assert trace_id(RUN, TRAJECTORY) == digest[:32]
    words = f"span\n{RUN}\n{TRAJECTORY}/b1r0a0/2/0\ncall".encode()
    assert call_span(RUN, f"{TRAJECTORY}/b1r0a0/2/0") == hashlib.sha256(words).hexdigest()[:16]


@given(st.text(), st.text(), st.text())
def test_ids_have_the_shape_of_a_trace_context(run: str, name: str, part: str):
    assert re.fullmatch("[0-9a-f]{32}", trace_id(run, name))
    assert re.fullmatch("[0-9a-f]{16}", span_id(run, name, part))
    assert set(trace_id(run, name)) != {"0"} != set(span_id(run, name, part))


def test_a_call_names_its_trajectory():
    assert trajectory_of("g0000012-3/b1r0a0/2/0") == "g0000012-3"
    assert trajectory_of("g0000012-3") == "g0000012-3"
