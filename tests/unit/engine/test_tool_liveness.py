"""Whether a service is there, driven by numbers."""

from __future__ import annotations

from engine.core.tools.link.liveness import PROBE_SECONDS, QUIET_SECONDS, Silence, Step


def steps(silence: Silence, start: int, end: int) -> dict[int, Step]:
    """What is said at each second, but for nothing."""
    found = {second: silence.tick(float(second)) for second in range(start, end)}
    return {second: step for second, step in found.items() if step is not Step.NOTHING}


def test_a_stopped_process_is_noticed_before_its_calls_are_late() -> None:
    silence = Silence()
    silence.expect(100.0)
    found = steps(silence, 101, 120)
    first, noticed, *later = found
    assert found[first] is Step.PROBE
    assert found[noticed] is Step.AWAY
    assert noticed - 100 <= QUIET_SECONDS + PROBE_SECONDS + 1
    assert all(found[second] is Step.PROBE for second in later)
    assert silence.away_since == 100.0


def test_a_long_call_of_a_process_that_answers_probes_is_no_silence() -> None:
    silence = Silence()
    silence.expect(0.0)
    for second in range(1, 100):
        if silence.tick(float(second)) is Step.PROBE:
            assert silence.heard(second + 0.01) is None
    assert silence.away_since is None


def test_it_is_back_with_its_first_word_and_says_how_long_it_was_away() -> None:
    silence = Silence()
    silence.heard(50.0)
    steps(silence, 51, 70)
    assert silence.heard(70.0) == 20.0
    assert silence.heard(71.0) is None
    assert steps(silence, 71, 73) == {}


def test_an_idle_time_is_no_silence() -> None:
    silence = Silence()
    silence.heard(0.0)
    silence.expect(1000.0)
    assert steps(silence, 1000, 1003) == {}


def test_a_refused_connection_is_news_once() -> None:
    silence = Silence()
    assert silence.refused(5.0)
    assert not silence.refused(6.0)
    assert silence.heard(9.0) == 4.0
    assert silence.refused(10.0)


def test_who_refused_is_probed_and_not_noticed_a_second_time() -> None:
    silence = Silence()
    silence.expect(0.0)
    silence.refused(1.0)
    found = steps(silence, 2, 30)
    assert found
    assert set(found.values()) == {Step.PROBE}
    assert silence.away_since == 1.0
