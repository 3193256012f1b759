"""What rollouts without barriers save, on the three workloads of VerlTool's table 2.

The same plans are played by the engine, where each trajectory goes on as soon as it can, and by a
loop that is batch-synchronous: everybody writes a turn, then everybody's tools run, and so on.
"""
