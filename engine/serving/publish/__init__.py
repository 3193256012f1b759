"""New weights from the learner: by a folder or over a process group."""
