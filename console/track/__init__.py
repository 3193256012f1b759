"""A run's curves in TensorBoard, W&B and MLflow, from the files of its run folder.

`points` says what a line of those files becomes, `following` brings them to one tracker, `to_*` are
the trackers, `facts` is what they are told beside curves, `beside` starts all that as a process of
its own.
"""
