"""mbridge's classes and transformers' configurations, for the trained architectures alone.

Importing mbridge imports all of its models, and with them transformers' model code, scipy and
scikit-learn. That is more than half of the CPU time of a learner's start, for classes that it would
refuse. So this module registers an empty package `mbridge.models` and imports the needed modules by
name. transformers imports the same code for the docstring of a configuration. So the docstring is
switched off here.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from transformers import AutoConfig

from toolwright.recipe import ARCHITECTURES

_PACKAGE = "mbridge.models"


def bridge_classes() -> dict[str, type[Any]]:
    """mbridge's classes by model type, for all of ARCHITECTURES."""
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


def read_config(folder: Path) -> Any:
    """transformers' configuration of a policy folder."""
    docstrings: Any = importlib.import_module("transformers.utils.auto_docstring")
    write = docstrings.auto_class_docstring
    docstrings.auto_class_docstring = lambda cls, **_texts: cls
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)
    finally:
        docstrings.auto_class_docstring = write
