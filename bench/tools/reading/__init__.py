"""From what was measured to what is read: `figures` and `rows`, the `knee` of a sweep, what
`compare` finds between two reports, and both as text (`terminal`) and as a page (`report`).
"""
