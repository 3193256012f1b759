"""A task file with broken rows under a real engine: they cost themselves and nothing else."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from engine.serving.journal.reader import JournalReader
from tests.chaos.crowd import Crowd
from tests.chaos.workload import Workload, prompt_of
from toolwright.common.v1 import trajectory_pb2
from toolwright.types import Status
from toolwright.wire import trajectory_from_proto

ROWS, EVERY = 1000, 34
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'nobody' %}{{ raise_exception('nobody speaks') }}{% endif %}"
    "{{ message['content'] }}{% endfor %}"
)
BROKEN = (
    b"{",
    b'{"prompt": "\xff"}',
    b"{}",
    b'{"messages": [5]}',
    b'{"prompt": "x", "metadata": "{"}',
    b'{"prompt": "\\ud800"}',
    b'{"prompt": "x", "image": "absent.png"}',
    b'{"messages": [{"role": "nobody", "content": "x"}]}',
    b'{"prompt": "x", "metadata": {"refuse": true}}',
    b'{"prompt": "x", "metadata": {"fail": true}}',
)
"""The last three fail later: in the policy's template, by the tool's refusal, and by an exception
in the tool."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_thirty_broken_rows_of_a_thousand_cost_themselves(tmp_path: Path) -> None:
    lines = [
        json.dumps({"id": str(number), "prompt": prompt_of(number)}).encode()
        for number in range(ROWS)
    ]
    broken = range(7, ROWS, EVERY)
    for number, at in enumerate(broken):
        lines[at] = BROKEN[number % len(BROKEN)]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(lines))
    good = ROWS - len(broken)
    crowd = Crowd(
        tmp_path,
        Workload(calls=(0, 0), tokens=(32, 32)),
        groups=good,
        size=1,
        places=128,
        rate=2000.0,
        changes={
            "task": {"source": "rows.jsonl", "shuffle": False},
            "engine": {"patience_s": 2.0},
        },
    )
    settings = tmp_path / "policy" / "tokenizer_config.json"
    settings.write_text(
        json.dumps({**json.loads(settings.read_text(encoding="utf-8")), "chat_template": TEMPLATE}),
        encoding="utf-8",
    )
    try:
        crowd.start()
        crowd.finish()
    finally:
        crowd.close()

    assert len(broken) == 30
    wanted = {f"g{number:07d}" for number in range(ROWS) if number not in broken}
    assert {group.group for group in crowd.offered()} == wanted
    with closing(JournalReader(crowd.run_folder)) as reader:
        assert [position for position, _ in reader.skipped()] == list(broken)
        records = [
            trajectory_from_proto(trajectory_pb2.Trajectory.FromString(member.data))
            for group in reader.groups()
            for member in group
        ]
    assert len(records) == good == 970
    assert all(one.status is Status.COMPLETED and not one.masked for one in records)
    (summary,) = crowd.logged("bad_rows")
    assert summary["summary"].startswith("30 rows were dropped: ")
    assert len(crowd.logged("bad_row")) == 30, "each is named once"
