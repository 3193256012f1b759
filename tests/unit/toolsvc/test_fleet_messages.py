"""A worker's lines are short enough for the front."""

from __future__ import annotations

from toolsvc.edge.wire import LONGEST_ID
from toolsvc.fleet.local.messages import LONGEST_LINE, Said, longest_line
from toolsvc.service_config import ServiceConfig

CONFIG = ServiceConfig(tools=("python",), listen="127.0.0.1:50061", max_sessions=3)


def test_whatever_ids_clients_choose_their_line_is_short_enough() -> None:
    ids = frozenset(
        "\x01" * (LONGEST_ID - 1) + chr(0x4E00 + number) for number in range(CONFIG.max_sessions)
    )
    assert len(Said(sessions=ids).line()) < longest_line(CONFIG) - LONGEST_LINE + 100
