"""Prints the data of `engine inspect`.

Texts come from policies and tools, so control characters are shown as their escapes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

LONGEST_TEXT = 400
"""Longest text, in characters; --json has all of it."""
LONGEST_LIST = 20
_COLOURS = {"PROMPT": "dim", "MODEL": "bold green", "TOOL": "cyan", "MEMORY": "magenta"}


def show(found: Mapping[str, Any], file: TextIO | None = None) -> None:
    """Prints the state of a run or a trajectory. file: default standard output."""
    console = Console(file=file, markup=False, emoji=False, highlight=False)
    console.print(_trajectory(found) if "trajectory" in found else _run(found))


def escaped(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text on one line, cut in the middle, with control characters as escapes."""
    if len(text) > longest:
        text = f"{text[: longest // 2]} ... {text[-longest // 2 :]}"
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _run(found: Mapping[str, Any]) -> RenderableType:
    head = Table.grid(padding=(0, 2))
    head.add_row("run", escaped(found["run"]))
    head.add_row("engine", "serves it now" if found["engine_lives"] else "none serves it")
    head.add_row("version", _version(found))
    counts = ", ".join(f"{count} {name}" for name, count in found["groups"].items())
    head.add_row("groups", counts.replace("turned_away", "discarded").replace("_", " "))
    head.add_row("trajectories", f"{found['trajectories_accepted']} accepted")
    parts: list[RenderableType] = [head]
    if found["skipped"]:
        parts.append(_skipped(found["skipped"]))
    parts.append(_in_flight(found["in_flight"]))
    if found["last_errors"]:
        parts.append(_errors(found["last_errors"]))
    return Group(*parts)


def _version(found: Mapping[str, Any]) -> str:
    if found["version"] is None:
        return "none yet"
    return f"{escaped(found['version'])} in {escaped(found['weights'])}"


def _skipped(skipped: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("skipped tasks", len(skipped), "position", "reason")
    for one in skipped[:LONGEST_LIST]:
        table.add_row(str(one["position"]), Text(escaped(one["reason"])))
    return table


def _in_flight(attempts: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("in flight", len(attempts), "attempt", "age", "turn", "tokens", "doing")
    for one in attempts[:LONGEST_LIST]:
        doing = one.get("error") or one["doing"]
        turn, tokens = str(one.get("turn", "")), str(one.get("response_tokens", ""))
        table.add_row(
            Text(escaped(one["attempt"])),
            f"{one['age_s']:.1f} s",
            turn,
            tokens,
            Text(escaped(doing)),
        )
    return table


def _errors(errors: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("last warnings and errors", len(errors), "when", "level", "what")
    for one in errors:
        rest = {k: v for k, v in one.items() if k not in ("timestamp", "level", "event")}
        what = f"{one.get('event', '')} {json.dumps(rest, default=str)}"
        when, level = escaped(str(one.get("timestamp", ""))), escaped(str(one["level"]))
        table.add_row(when, level, Text(escaped(what)))
    return table


def _table(title: str, count: int, *columns: str) -> Table:
    shown = f", the first {LONGEST_LIST} shown" if count > LONGEST_LIST else ""
    table = Table(title=f"{title}: {count}{shown}", title_justify="left", box=None)
    for column in columns:
        table.add_column(column, header_style="dim")
    return table


def _trajectory(found: Mapping[str, Any]) -> RenderableType:
    head = Table.grid(padding=(0, 2))
    name = escaped(found["trajectory"])
    attempts = ", ".join(f"{escaped(one['attempt'])} ({one['state']})" for one in found["attempts"])
    head.add_row(
        "trajectory", name + (f", task {escaped(found['task'])}" if "task" in found else "")
    )
    if attempts:
        head.add_row("attempts", Text(attempts))
    if "sequence" in found:
        fate = ", dropped" if found["dropped"] else ", discarded" if found["turned_away"] else ""
        head.add_row("group", f"{escaped(found['group'])}, sequence {found['sequence']}{fate}")
    rows = [_entry(entry) for entry in found["timeline"]]
    return Group(head, Text(), *rows, Text(), _end(found))


def _entry(entry: Mapping[str, Any]) -> RenderableType:
    if entry["kind"] == "tokens":
        return _tokens(entry)
    if entry["kind"] == "call":
        return _call(entry)
    return Text(f"{entry['turn']:>3}  ! {entry['event']} {escaped(json.dumps(entry['data']))}")


def _tokens(entry: Mapping[str, Any]) -> RenderableType:
    style = _COLOURS.get(entry["author"], "yellow")
    line = Text(f"{entry['turn']:>3}  ")
    line.append(f"{entry['author']:<8}", style=style)
    line.append(f"{entry['tokens']:>6} tokens from {entry['position']}")
    if entry["version"]:
        line.append(f", version {escaped(entry['version'])}")
    if entry.get("finish"):
        matched = "" if entry["matched"] is None else f" {escaped(str(entry['matched']))!r}"
        line.append(f", {entry['finish']}{matched}")
    if entry["author"] == "MODEL" and not entry["trainable"]:
        line.append(", carries no loss")
    if not entry["text"]:
        return line
    return Group(line, Padding(Text(escaped(entry["text"]), style=style), (0, 0, 0, 5)))


def _call(entry: Mapping[str, Any]) -> RenderableType:
    line = Text(f"{entry['turn']:>3}  > ")
    line.append(escaped(entry["tool"] or "no tool"), style="bold cyan")
    line.append(f" queued {_ms(entry['queued_s'])}, ran {_ms(entry['run_s'])}")
    if entry["answered_s"] is not None:
        line.append(f", answered after {_ms(entry['answered_s'])}")
    if not entry["valid"]:
        line.append(f", not understood: {escaped(entry['invalid_reason'])}", style="red")
    if entry["error"] != "NONE":
        line.append(f", {entry['error']}", style="red")
    return line


def _end(found: Mapping[str, Any]) -> RenderableType:
    end = Table.grid(padding=(0, 2))
    why = f", {escaped(found['error'])}" if found.get("error") else ""
    end.add_row("ended", f"{found['stop_reason'] or 'not yet'} ({found['status']}){why}")
    if found.get("waits_for"):
        end.add_row("waits for", Text(escaped(", ".join(found["waits_for"]))))
    if found["reward"] is not None:
        end.add_row("reward", f"{found['reward'] + 0.0:g}")
    for part in found.get("reward_parts", ()):
        turn = "" if part["turn"] is None else f" of turn {part['turn']}"
        end.add_row("", f"{escaped(part['name'])}{turn}: {part['value'] + 0.0:g}")
    if "masked" in found:
        end.add_row("masked", Text(escaped(found["why_masked"])) if found["masked"] else "no")
    seconds = ", ".join(f"{name} {_ms(value)}" for name, value in found["seconds"].items())
    end.add_row("time", seconds)
    return end


def _ms(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
