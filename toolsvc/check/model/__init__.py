"""Random histories against a model of the contract: what no named check thought of.

`steps` has the words: what a history asks, and what may be seen of it. `model` is the contract as
a pure state machine: which steps make sense, and what each may come to. `generator` makes histories
of a seed, `player` plays them against a service, `shrinking` shortens one that failed.

Not Hypothesis: a history is played over gRPC by a coroutine, and is as long as the service lets it
be; a seed, and the dropping of steps, is all that is needed of it.
"""
