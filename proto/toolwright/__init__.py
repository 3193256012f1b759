"""Modules that two or more of Toolwright's processes share.

*/v1/, rpc/            the contracts, their generated code, and how gRPC is spoken
types.py, wire.py      the record of a trajectory, and the same in protobuf
trajectory_files.py    files of records
recipe/                the file that every process reads
credit/                from rewards to advantages
process/, imports.py   running on a machine; objects that a recipe names
script.py              files of a recipe as programs
model/                 the folder of a run's policy
chat/                  its tokenizer and chat template: messages to token ids
reading/               how outside input is read: rows, actions, answers, pixels
model_api/             OpenAI-compatible endpoints: addresses, refused keys, streams, answers
text/, page/           text and pages for people and prompts
statistics.py          means and their errors
reward_figures.py      names of what reward functions measure beside a reward
tracing/               spans and where they are sent

A module is here if two packages need it, or if recipes import it. What one package alone uses lies
in that package.

Nothing here imports torch, engine, learner, toolsvc, memory, tasks, console or bench. Only
process/entry.py starts their commands, by name.
"""

import os

# gRPC reads these when it is imported. With its fork handlers, which none of our processes needs, a
# child that an event loop starts while calls are under way may die of SIGSEGV instead of becoming
# its program.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# gRPC's own lines on standard error repeat what our errors say. To debug gRPC, set the variable to
# ERROR or INFO.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
