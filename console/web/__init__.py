"""`toolwright view --web`: the trajectories of runs as pages in a browser.

The way of a row: `index/` reads what a run leaves and keeps it in SQLite, and `telling/` makes one
trajectory readable. `app.py` answers questions about both, `door.py` admits requests, and `pages/`
shows the answers. Nothing here writes to a run folder.
"""
