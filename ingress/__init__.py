"""The HTTP side of outside agents: their requests become model calls of the engine's trajectories.

- types.py: the vocabulary: a neutral request, its messages, and what a model wrote
- errors.py: refusals, in no dialect's shape yet
- dialects/: requests and responses of each API
- canon.py: digests by which the engine finds where a request goes on from
- text/: messages to token ids, and a completion's ids to text, reasoning and calls
- readers/: how a model writes tool calls
- link.py: one model call over `toolwright.ingress.v1`
- server.py: routes, keys, streams; serving.py is the process
- config.py: the recipe's [ingress] table; cli.py is the command `ingress`

A process of it holds no trajectory: the engine matches, samples, logs and journals.
"""
