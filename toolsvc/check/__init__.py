"""The conformance suite: proves from outside that a service keeps the contract of ToolService.

It speaks `toolwright.tool.v1` over gRPC and knows nothing else of a service. What a tool has to
be told so that something can be seen (count, sleep, fail) is a `probe`. `runner.run` runs the
checks of `checks`, `report` shows what came of them. The suite is proved by a small service that
keeps the contract and by the same one with one rule broken at a time: `tests/support/conformance`.
"""
