"""From a submission to a verdict.

`archives` reads the trees that come out of boxes, by a `parser` in a confined process; `tree`
compares them, and `tampering` looks for what a submission may not touch. `verification` lays the
submission out in a fresh box, lays down pytest's `settings`, runs the tests, and reads their
`report`.
"""
