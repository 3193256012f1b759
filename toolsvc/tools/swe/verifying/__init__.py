"""From a submission to a verdict.

`archives` reads the trees that come out of boxes, by a `parser` in a confined process; `tree`
compares them, and `tampering` looks for what a submission may not touch. `verification` applies the
test `patch` in a fresh box, and lays the submission and pytest's `settings` over it. It runs the
tests there and reads their `report`; `logs` has the parsers of published ones. `verification_file`
says which statuses solve the task.
"""
