"""What the memory holds, and what a change makes of it.

guards.py    what lets a tool in
merging.py   which tools are one
naming.py    names that are free, and code that runs under another one
decide.py    what a group's work makes of a version: a change
changes.py   a change as bytes and back
graph.py     nodes, edges and names at one version
fold.py      changes become a graph
snapshot.py  a version as bytes and back
"""
