"""Who is charged for what the shared processes of a browser grow by: numbers alone."""

from toolsvc.tools.browser.growth import Effort, Growth

MIB = 1 << 20
PAGES = 256
"""In a MiB."""


def test_what_was_there_at_first_is_nobodys() -> None:
    growth = Growth()
    growth.look(500 * MIB, {1: Effort(9.0, 10000)})
    assert growth.heaviest() is None


def test_who_wrote_is_charged_and_not_who_computed() -> None:
    growth = Growth()
    growth.look(100 * MIB, {1: Effort(0.0, 0), 2: Effort(0.0, 0)})
    growth.look(400 * MIB, {1: Effort(1.0, 10), 2: Effort(0.2, 300 * PAGES)})
    heaviest = growth.heaviest()
    assert heaviest[0] == 2
    assert 270 * MIB < heaviest[1] <= 300 * MIB


def test_small_messages_are_charged_by_time() -> None:
    growth = Growth()
    growth.look(100 * MIB, {1: Effort(0.0, 0), 2: Effort(0.0, 0)})
    growth.look(110 * MIB, {1: Effort(0.0, 0), 2: Effort(0.5, 0)})
    assert growth.heaviest() == (2, 10 * MIB)


def test_a_page_that_is_new_is_charged_for_all_it_did() -> None:
    growth = Growth()
    growth.look(100 * MIB, {1: Effort(5.0, 5000 * PAGES)})
    growth.look(150 * MIB, {1: Effort(5.0, 5000 * PAGES), 2: Effort(0.1, 60 * PAGES)})
    assert growth.heaviest() == (2, 50 * MIB)


def test_what_shrinks_is_taken_off_all_charges() -> None:
    growth = Growth()
    growth.look(100 * MIB, {1: Effort(0.0, 0)})
    growth.look(200 * MIB, {1: Effort(0.0, 100 * PAGES)})
    growth.look(100 * MIB, {1: Effort(0.0, 100 * PAGES)})
    assert growth.heaviest() == (1, 50 * MIB)


def test_who_is_gone_or_forgiven_is_charged_no_more() -> None:
    growth = Growth()
    growth.look(100 * MIB, {1: Effort(0.0, 0), 2: Effort(0.0, 0)})
    growth.look(200 * MIB, {1: Effort(0.0, 60 * PAGES), 2: Effort(0.0, 40 * PAGES)})
    growth.look(200 * MIB, {2: Effort(0.0, 40 * PAGES)})
    assert growth.heaviest() == (2, 40 * MIB)
    growth.forgive(2)
    assert growth.heaviest() is None
