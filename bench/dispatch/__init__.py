"""How long a tool call waits inside the engine: from the stop token's bytes to the channel.

A real engine process between a scripted sampler and a real tool service, each in a process of
its own; the figures are the stamps that the engine leaves in every trajectory.
"""
