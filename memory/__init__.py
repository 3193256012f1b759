"""The tool-graph memory: tools that agents made live on, are merged with their equals, and found.

types.py      the words: a tool, its node, what a group of rollouts did, the change that it makes
errors.py     what is refused
admission.py  what of a group's work may come in
memory.py     one memory: what groups do to it, and questions to it
history.py    the fold of its log, from the nearest snapshot on
graph/        the way of a tool: guards let it in, merging finds its class, the graph holds it
checks/       what only running a tool can tell, by whoever has a sandbox
search/       the way of a question: scores by words and by embeddings, and a walk along the graph
store/        where the changes lie: SQLite or Redis
edge/         the memory as a process, over gRPC
config.py     the recipe's [memory] table; opening.py finds the store that it names
cli.py        the command `memory`; commands/ does what it says
"""
