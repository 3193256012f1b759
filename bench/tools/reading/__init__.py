"""From windows to a report: `figures` and `rows`, the `knee` of a sweep, the changes between two
reports (`compare`), and all of it as text (`terminal`) and as a page (`page`).
"""
