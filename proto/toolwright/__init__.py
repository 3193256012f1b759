"""What two or more of Toolwright's processes share: contracts, record, recipe, rpc.

Nothing here imports engine, learner, toolsvc, memory or bench, and nothing here imports torch.
"""

import os

# gRPC reads these when it is imported. With its fork handlers, which none of our processes needs, a
# child that an event loop starts while calls are under way may die of SIGSEGV instead of becoming
# its program.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Its own lines on standard error say in its words what our errors say in a sentence; whoever debugs
# gRPC sets the variable to ERROR or INFO.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
