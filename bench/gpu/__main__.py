"""`python -m bench.gpu`: the command where the project is not installed."""

from __future__ import annotations

import typer

from bench.gpu.command import gpu

if __name__ == "__main__":
    typer.run(gpu)
