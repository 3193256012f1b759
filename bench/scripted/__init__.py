"""The scripted sampler: SGLang's native HTTP wire without a model.

The replies come from a script (a pure function), their pace from a timing; both repeat exactly.
For tests, benchmarks and tutorials, in a process of its own (`bench scripted-sampler --help`) or
inside the caller's event loop (`async with ScriptedSampler(...)`).
"""

from bench.scripted.faults import Break, BreakHow, Faults
from bench.scripted.scheduling.batch import Gpu
from bench.scripted.scheduling.timing import Timing
from bench.scripted.script import Script, ScriptItem, cycle, parse_script, replies
from bench.scripted.server import ScriptedSampler
from bench.scripted.types import (
    PauseMode,
    RequestError,
    SchemaError,
    ScriptedSamplerError,
    ScriptError,
    ScriptRequest,
    SeenRequest,
    StartError,
    Token,
)

__all__ = [
    "Break", "BreakHow", "Faults", "Gpu", "PauseMode", "RequestError", "SchemaError", "Script",
    "ScriptError", "ScriptItem", "ScriptRequest", "ScriptedSampler", "ScriptedSamplerError",
    "SeenRequest", "StartError", "Timing", "Token", "cycle", "parse_script", "replies",
]  # fmt: skip
