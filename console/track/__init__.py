"""A run's curves in TensorBoard, W&B and MLflow, from the files of its run folder.

`points` turns a line of those files into points. `following` sends them to one tracker. `to_*` are
the trackers. `facts` has what they get beside curves. `beside` starts all that as a process.
"""
