"""mbridge's classes for the policies that are trained here, and none of its others.

Importing mbridge imports every model that it knows, and with them transformers' model code, scipy
and scikit-learn: more than half of the CPU time that a learner's start takes, for classes that it
would refuse. So the package `mbridge.models` is there without its list of models, and the modules
that are wanted are imported from it by name.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from toolwright.recipe import ARCHITECTURES

_PACKAGE = "mbridge.models"


def bridge_classes() -> dict[str, type[Any]]:
    """By model type, for all of ARCHITECTURES."""
    if _PACKAGE not in sys.modules:
        found = importlib.util.find_spec("mbridge")
        assert found is not None and found.origin is not None, "mbridge comes with the learner"
        empty = ModuleType(_PACKAGE)
        empty.__path__ = [str(Path(found.origin).with_name("models"))]
        sys.modules[_PACKAGE] = empty
    for name in ARCHITECTURES:
        importlib.import_module(f"{_PACKAGE}.{name.replace('_', '')}")
    from mbridge.core.bridge import _MODEL_REGISTRY

    return {name: _MODEL_REGISTRY[name] for name in ARCHITECTURES}
