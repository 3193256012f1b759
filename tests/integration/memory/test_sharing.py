"""`memory export`, `import` and `copy`: a memory as files that people share."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memory.admission import MOST_EDGES
from memory.graph.changes import to_bytes
from memory.types import Change, NewNode
from tests.support.memory_commands import HOSTILE, append, fill, growing, run, write_file
from tests.support.tool_memory import registering, tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.loader import load_tools
from toolwright.json_data import MOST_DEPTH

pytestmark = pytest.mark.quick


def served_of(file: Path) -> list[Any]:
    return asyncio.run(load_tools([str(file)], {}, SandboxConfig()))


def test_an_exported_memory_comes_back_whole(store: str, tmp_path: Path) -> None:
    fill(store, *growing())
    out, other = tmp_path / "out", tmp_path / "other.sqlite"
    assert "2 tools of version 3" in run("export", store, out).stdout
    assert "2 tools came in, 0 were refused" in run("import", out / "memory.json", other).stdout
    again = tmp_path / "again"
    assert run("export", other, again).exit_code == 0
    first, second = (
        json.loads((one / "memory.json").read_text(encoding="utf-8")) for one in (out, again)
    )
    assert (first["tools"], first["edges"]) == (second["tools"], second["edges"])
    # Brought in twice it is there once.
    done = run("import", out / "memory.json", other, "--delta", "0.5")
    assert "the 2 tools of this file came in before, and nothing is changed; 2 tools" in done.stdout
    assert len(run("list", other).stdout.splitlines()) == 3


def test_an_exported_tool_is_served(tmp_path: Path) -> None:
    fill(str(tmp_path / "m.sqlite"), *growing())
    assert run("export", tmp_path / "m.sqlite", tmp_path / "out", "--only", "square").exit_code == 0
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["tool_square.py"]
    (served,) = served_of(tmp_path / "out" / "tool_square.py")
    assert (served.name, served.description) == ("square", "square of a number")
    assert served.schema["required"] == ["n"]
    assert served.call(None, type("Call", (), {"arguments": {"n": 7}})) == 49


def test_strangers_texts_stay_texts(tmp_path: Path) -> None:
    bad = tool("bad", HOSTILE, code=f"def bad():\n    pass\n# {HOSTILE}\n", returns=HOSTILE)
    worse = tool("worse", 'x"""\nimport os\nos.abort()\n"""', returns="{name}")
    store = tmp_path / "m.sqlite"
    fill(str(store), registering("a", bad, worse))
    for words in (("list", store), ("show", store, "worse"), ("show", store, "bad")):
        done = run(*words)
        assert done.exit_code == 0, done.output
        assert "\x1b" not in done.stdout
        assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in done.stdout
    assert run("report", store, "--output", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<img" not in page
    assert run("export", store, tmp_path / "out").exit_code == 0
    (served,) = served_of(tmp_path / "out" / "tool_worse.py")
    assert served.description.startswith('x"""\nimport os')


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("# coding: utf-7\n# +AAo-import os+ADs- os.abort()\n", "names an encoding"),
        ("# coding: none-such\n", "is not a file by itself"),
        ("# \x1b[2K\n", "U+001B"),
        ("# \N{RIGHT-TO-LEFT OVERRIDE}\n", "U+202E"),
        ("def ExportedTool(): pass\n", "has the word ExportedTool"),
    ],
)
def test_code_that_a_reader_would_not_see_is_no_file(tmp_path: Path, code: str, told: str) -> None:
    store = tmp_path / "m.sqlite"
    fill(str(store), registering("a", tool("sly", code=f"{code}\ndef sly():\n    return 1\n")))
    done = run("export", store, tmp_path / "out")
    assert done.stderr.startswith("left out: sly: its code ")
    assert told in done.stderr
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["memory.json"]


def test_a_file_is_in_the_way_of_no_import(tmp_path: Path) -> None:
    """A tool may have the name of a module: of one that others import, or of one that ours does."""
    fraction = "import fractions\n\n\ndef half():\n    return str(fractions.Fraction(1, 2))\n"
    store = tmp_path / "m.sqlite"
    tools = [
        tool("fractions", "no module", code="def fractions():\n    raise SystemExit\n"),
        tool("half", "a half", code=fraction),
        tool("json", "sum", code="def json(n):\n    return n and n + json(n - 1)\n"),
    ]
    fill(str(store), registering("a", *tools))
    assert run("export", store, tmp_path / "out").exit_code == 0
    code = (
        "import sys\nfrom pathlib import Path\nfrom types import SimpleNamespace as Call\n"
        "import asyncio\nfrom toolsvc.sandbox.config import SandboxConfig\n"
        "from toolsvc.sources.loader import load_tools\n"
        "for name, given in (('half', {}), ('json', {'n': 3})):\n"
        "    sys.modules.pop('fractions', None)\n"
        "    file = str(Path(sys.argv[1]) / f'tool_{name}.py')\n"
        "    (served,) = asyncio.run(load_tools([file], {}, SandboxConfig()))\n"
        "    print(served.call(None, Call(arguments=given)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "out"], capture_output=True, text=True
    )
    assert done.stdout.split() == ["1/2", "6"], done.stderr


def test_an_export_writes_over_nothing(tmp_path: Path) -> None:
    store, out = tmp_path / "m.sqlite", tmp_path / "out"
    fill(str(store), *growing())
    out.mkdir()
    for name, words in (("memory.json", ()), ("tool_square.py", ("--only", "square"))):
        (out / name).write_text("mine", encoding="utf-8")
        done = run("export", store, out, *words)
        assert done.exit_code == 1
        assert done.stderr == f"memory: {out / name} is there already: name an empty folder\n"
        assert (out / name).read_text(encoding="utf-8") == "mine"


def test_names_in_the_store_are_a_strangers_too(tmp_path: Path) -> None:
    """No guard saw what somebody wrote into a store with another program."""
    store, out = tmp_path / "m.sqlite", tmp_path / "out"
    names = (f'{tmp_path}/away"""#', "../up", "class", "Area", "area")
    made = tuple(
        NewNode(tool=tool(name, code="def area(x=0):\n    return x\n"), vector=bytes(256))
        for name in names
    )
    append(store, "a", to_bytes(Change(group="a", step=1, made=made)))
    done = run("export", store, out)
    assert "2 tools of version 1" in done.stdout
    assert done.stderr.count("is not a function name") == 3
    assert {file.name for file in tmp_path.rglob("*") if file.suffix in (".py", ".json")} == {
        "memory.json",
        "tool_Area.py",
        "tool_area-4.py",
    }


def test_a_copy_is_the_memory_as_it_was(tmp_path: Path) -> None:
    fill(str(tmp_path / "m.sqlite"), *growing())
    copied = run("copy", tmp_path / "m.sqlite", tmp_path / "old.sqlite", "--version", "2")
    assert copied.exit_code == 0
    for store, version in (("m.sqlite", 2), ("old.sqlite", 2)):
        out = tmp_path / f"out-{store}"
        assert run("export", tmp_path / store, out, "--version", str(version)).exit_code == 0
    assert (tmp_path / "out-m.sqlite" / "memory.json").read_bytes() == (
        tmp_path / "out-old.sqlite" / "memory.json"
    ).read_bytes()


def test_edges_join_the_tools_of_their_own_file(tmp_path: Path) -> None:
    """Whatever tools of the memory have the names that tools of the file have there."""
    store = tmp_path / "m.sqlite"
    fill(str(store), registering("a", tool("foo", "another one"), tool("bad", "one more")))
    made = [tool(f"t{number}", f"word{number} of{number}") for number in range(600)]
    tools = (tool("foo", "fool of the file"), tool("bad", code="no code"), *made)
    edges = [("foo", "t599", 3), ("bad", "t599", 2), ("t0", "t1", 1)]
    write_file(tmp_path / "file.json", *tools, edges=edges)
    done = run("import", tmp_path / "file.json", store, "--delta", "1")
    assert "601 tools came in, 1 were refused" in done.stdout, done.output
    assert run("export", store, tmp_path / "out").exit_code == 0
    whole = json.loads((tmp_path / "out" / "memory.json").read_text(encoding="utf-8"))
    (renamed,) = (one["name"] for one in whole["tools"] if one["name"].startswith("foo_"))
    assert whole["edges"] == [[renamed, "t599", 3], ["t0", "t1", 1]]


def test_whatever_is_exported_is_imported(tmp_path: Path) -> None:
    """Also a schema as deep as the guards let in, and more edges than a change may have."""
    schema: dict[str, Any] = {}
    for _ in range(MOST_DEPTH - 1):
        schema = {"a": schema}
    tools = [
        tool(f"t{number}", f"word{number} of{number}", schema=schema if number == 3 else {})
        for number in range(130)
    ]
    edges = [(one.name, other.name, 1) for one in tools for other in tools if one != other]
    assert len(edges) > MOST_EDGES
    write_file(tmp_path / "file.json", *tools, edges=edges)
    for file, store, out in (("file.json", "m.sqlite", "1"), ("1/memory.json", "o.sqlite", "2")):
        done = run("import", tmp_path / file, tmp_path / store)
        assert "130 tools came in, 0 were refused" in done.stdout, done.output
        assert run("export", tmp_path / store, tmp_path / out).exit_code == 0
    whole = json.loads((tmp_path / "2" / "memory.json").read_text(encoding="utf-8"))
    assert sorted(map(tuple, whole["edges"])) == sorted(edges)
    assert schema in [one["schema"] for one in whole["tools"]]


def test_a_copy_is_whole_or_says_so(tmp_path: Path) -> None:
    store = tmp_path / "m.sqlite"
    for after, name in enumerate("ab"):
        append(store, name, to_bytes(Change(group="a", step=after)), after)
    done = run("copy", store, tmp_path / "other.sqlite")
    assert done.exit_code == 1
    assert "change 2 does not stand in" in done.stderr
