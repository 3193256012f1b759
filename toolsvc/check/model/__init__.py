"""Random histories against a model of the contract. They find faults that no named check expects.

`types` has the words of a history. `model` is the contract as a pure state machine. `player` sends
requests to a service. `machine` generates histories with Hypothesis, and shortens one that fails.
"""
