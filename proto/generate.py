"""Makes the Python code of every contract under `toolwright/`, in place.

Run by `make proto` in the environment of constraints/protoc.txt, so that the output is that of
the oldest supported protoc. `--check` writes nothing and fails when the committed code differs.
"""

from __future__ import annotations

import argparse
import filecmp
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
PLUGINS = Path(sys.executable).parent


def generate(out: Path) -> None:
    """Writes *_pb2.py, *_pb2_grpc.py and their stubs under `out`."""
    contracts = sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("toolwright/*/v1/*.proto"))
    services = [name for name in contracts if "/common/" not in name]
    well_known = resources.files("grpc_tools") / "_proto"
    base = ["protoc", f"-I{ROOT}", f"-I{well_known}"]
    base += [f"--plugin={PLUGINS / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    messages = [*base, f"--python_out={out}", f"--mypy_out=quiet:{out}", *contracts]
    stubs = [*base, f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}", *services]
    for arguments in (messages, stubs):
        if protoc.main(arguments) != 0:
            sys.exit(f"protoc refused the contracts: {' '.join(arguments)}")


def differences(fresh: Path) -> list[str]:
    """Names of generated files that the tree lacks, has too many, or has otherwise."""
    made = {p.relative_to(fresh) for p in fresh.rglob("*_pb2*.py*")}
    committed = {
        p.relative_to(ROOT) for p in ROOT.rglob("*_pb2*.py*") if "__pycache__" not in p.parts
    }
    stale = [
        name
        for name in made & committed
        if not filecmp.cmp(fresh / name, ROOT / name, shallow=False)
    ]
    return sorted(str(name) for name in [*(made ^ committed), *stale])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 on a difference")
    if not parser.parse_args().check:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        found = differences(Path(folder))
    if found:
        sys.exit(
            "generated code is not that of the contracts; run `make proto`:\n  "
            + "\n  ".join(found)
        )


if __name__ == "__main__":
    main()
