"""Whether a service is there, driven by numbers."""

from __future__ import annotations

from engine.core.tools.link.liveness import PROBE_SECONDS, QUIET_SECONDS, Liveness, LivenessStep


def steps(liveness: Liveness, start: int, end: int) -> dict[int, LivenessStep]:
    """What is said at each second, but for nothing."""
    found = {second: liveness.tick(float(second)) for second in range(start, end)}
    return {second: step for second, step in found.items() if step is not LivenessStep.NOTHING}


def test_a_stopped_process_is_noticed_before_its_calls_are_late() -> None:
    liveness = Liveness()
    liveness.expect(100.0)
    found = steps(liveness, 101, 120)
    first, noticed, *later = found
    assert found[first] is LivenessStep.PROBE
    assert found[noticed] is LivenessStep.AWAY
    assert noticed - 100 <= QUIET_SECONDS + PROBE_SECONDS + 1
    assert all(found[second] is LivenessStep.PROBE for second in later)
    assert liveness.away_since == 100.0


def test_a_long_call_of_a_process_that_answers_probes_is_no_silence() -> None:
    liveness = Liveness()
    liveness.expect(0.0)
    for second in range(1, 100):
        if liveness.tick(float(second)) is LivenessStep.PROBE:
            assert liveness.heard(second + 0.01) is None
    assert liveness.away_since is None


def test_it_is_back_with_its_first_word_and_says_how_long_it_was_away() -> None:
    liveness = Liveness()
    liveness.heard(50.0)
    steps(liveness, 51, 70)
    assert liveness.heard(70.0) == 20.0
    assert liveness.heard(71.0) is None
    assert steps(liveness, 71, 73) == {}


def test_an_idle_time_is_no_silence() -> None:
    liveness = Liveness()
    liveness.heard(0.0)
    liveness.expect(1000.0)
    assert steps(liveness, 1000, 1003) == {}


def test_a_refused_connection_is_news_once() -> None:
    liveness = Liveness()
    assert liveness.refused(5.0)
    assert not liveness.refused(6.0)
    assert liveness.heard(9.0) == 4.0
    assert liveness.refused(10.0)


def test_who_refused_is_probed_and_not_noticed_a_second_time() -> None:
    liveness = Liveness()
    liveness.expect(0.0)
    liveness.refused(1.0)
    found = steps(liveness, 2, 30)
    assert found
    assert set(found.values()) == {LivenessStep.PROBE}
    assert liveness.away_since == 1.0
