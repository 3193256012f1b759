"""What two or more of Toolwright's processes share.

*/v1/, rpc/         the contracts, their generated code, and how gRPC is spoken
types.py, wire.py   the record of a trajectory, and the same in protobuf
recipe/             the file that every process reads
credit/             from rewards to advantages
process/, model/    running on a machine; a run's policy
text/               what several read or cut in the same way
reading/            how outside input is read: rows, actions, answers, pixels
model_api/          OpenAI-compatible endpoints: addresses, refused keys, streams, answers
page/, reference/   what people look at; what papers print
tracing/            spans of a trajectory

Nothing here imports engine, learner, toolsvc, memory, tasks, console or bench (but for
process/entry.py, which starts their commands by name), and nothing here imports torch.
"""

import os

# gRPC reads these when it is imported. With its fork handlers, which none of our processes needs, a
# child that an event loop starts while calls are under way may die of SIGSEGV instead of becoming
# its program.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Its own lines on standard error say in its words what our errors say in a sentence; whoever debugs
# gRPC sets the variable to ERROR or INFO.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
