"""The tool-graph memory: it keeps the tools that agents made, merges equal ones, and finds them.

- types.py: the vocabulary: a tool, its node, a group's work, and the change that the work makes
- errors.py: the error types
- admission.py: checks on a group's work before it is merged
- memory.py: one memory: merges and questions
- history.py: the fold of the log, from the nearest snapshot on
- graph/: guards check a tool, merging finds its class, the graph holds it
- checks/: checks that need a tool to run, made by a tool service with a sandbox
- search/: scores by words and by embeddings, and a walk along the graph
- store/: the log of changes, in SQLite or Redis
- edge/: the memory as a gRPC process
- config.py: the recipe's [memory] table; opening.py opens the store that it names
- cli.py: the command `memory`; commands/ holds its subcommands
"""
