"""Makes the Python environment of the airline's MCP server.

    python -m toolwright.script server.py --output run/server

The server needs mcp 1 and Toolwright needs mcp 2, so the server has an environment of its own. pip
installs the packages of server.txt there. The environment appears after pip succeeded.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from toolwright.script import Output

REQUIREMENTS = Path(__file__).with_name("server.txt")


def main(*, output: Output) -> None:
    """Install the airline's MCP server."""
    unfinished = output.with_name(f"{output.name}.unfinished")
    venv.create(unfinished, with_pip=True, clear=True)
    pip = [str(unfinished / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "-q", "-r", str(REQUIREMENTS)], check=False)
    if done.returncode:
        sys.exit(f"server.py: pip could not install {REQUIREMENTS.name}: its lines above say why")
    unfinished.rename(output)
    print(f"the airline's MCP server: {output}")
