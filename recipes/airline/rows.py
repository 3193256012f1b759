"""Writes the airline's tasks as rows: the package's policy as system prompt, and the customer.

    python -m toolwright.script rows.py --package run/server --rows-of test --output run/test.jsonl

    train       30 tasks of the package's split `train`
    test        20 tasks of its split `test`
    solving     50 tasks, each with the script of an agent that solves it
    damaging    50 rows of ten tasks, each with the script of an agent that does damage

The data source of `train` and `test` says whether a task expects a change of the database:
`change` or `no change`. A row's answer is one JSON object: the expected actions, and the outputs
that the agent must say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from toolwright.script import Output

from .customer import opening
from .package import AirlinePackage
from .replay import AirlineReplay, Changes
from .world.agents import DAMAGES, SOLVING, changes, messages
from .world.script import with_script

Row = Mapping[str, Any]
TAKEN = 10
"""Tasks of the agents that do damage. Each task expects a change of the database."""


def rows(package: AirlinePackage, tasks: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """Rows for `engine` in the order of the tasks."""
    for task in tasks:
        instructions = task["user_scenario"]["instructions"]
        actions = _wanted(task)["actions"]
        yield {
            "id": f"airline-{task['id']}",
            "data_source": "change" if any(map(changes, actions)) else "no change",
            "messages": [
                {"role": "system", "content": package.policy},
                {"role": "user", "content": opening(instructions)},
            ],
            "answers": [json.dumps(_wanted(task), ensure_ascii=False)],
            "metadata": {"customer": instructions},
        }


def scripted(package: AirlinePackage, *, damaging: bool) -> Iterator[Row]:
    """Rows of the demonstration; the tasks that expect a change come first."""
    replay = AirlineReplay(package)
    changed = {task["id"]: replay.changes(_pairs(task)) for task in package.tasks}
    tasks = sorted(package.tasks, key=lambda task: not changed[task["id"]])
    plays = [(task, SOLVING) for task in tasks]
    if damaging:
        agents = list(DAMAGES)
        plays = [
            (task, agents[(place + shift) % len(agents)])
            for shift in range(len(agents))
            for place, task in enumerate(tasks[:TAKEN])
        ]
    for (task, agent), row in zip(plays, rows(package, (task for task, _ in plays)), strict=True):
        other = _other_reservation(package, changed[task["id"]])
        said = messages(agent, _wanted(task), other)
        yield {**with_script(row, said), "id": f"{row['id']}, {agent}", "data_source": agent}


def _other_reservation(package: AirlinePackage, changed: Changes) -> tuple[str, str]:
    """(user id, reservation id) of a booking that no expected action touches."""
    users = {row.get("user_id", identity) for (_, identity), row in changed.items()}
    return next(
        (one.user_id, one.reservation_id)
        for one in package.database.reservations.values()
        if one.user_id not in users and one.status != "cancelled"
    )


def _wanted(task: Mapping[str, Any]) -> Mapping[str, Any]:
    wanted = task["evaluation_criteria"]
    actions = [{"name": name, "arguments": arguments} for name, arguments in _pairs(task)]
    return {"actions": actions, "outputs": wanted["communicate_info"]}


def _pairs(task: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for one in task["evaluation_criteria"]["actions"]:
        yield one["name"], one["arguments"]


def main(
    *,
    package: Annotated[Path, "environment of server.txt"],
    rows_of: Annotated[Literal["train", "test", "solving", "damaging"], "which rows"],
    output: Output,
) -> None:
    """Write the airline's tasks."""
    found = AirlinePackage(package)
    if rows_of in ("solving", "damaging"):
        each = scripted(found, damaging=rows_of == "damaging")
    else:
        each = rows(found, found.split(rows_of))
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in each]
    output.write_text("".join(lines), encoding="utf-8")
    print(f"{len(lines)} tasks of the airline: {output}")
