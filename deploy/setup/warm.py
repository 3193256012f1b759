"""Imports modules once, for two ends: `PYTHON warm.py MODULE ...`, by the environment's own Python.

A freshly made environment has no bytecode. Where PYTHONDONTWRITEBYTECODE is set (containers, CI)
none would ever appear, and every process would compile torch and SGLang anew (measured: the server
was ready after 39 s instead of 14). And an environment whose modules do not import should fail
here, not in mid-run.
"""

import importlib
import sys
import warnings


def main(modules: list[str]) -> None:
    sys.dont_write_bytecode = False
    warnings.simplefilter("ignore")
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise SystemExit(
                f"setup: {sys.prefix} holds {module}, and it does not import: {error}"
            ) from error


if __name__ == "__main__":
    main(sys.argv[1:])
