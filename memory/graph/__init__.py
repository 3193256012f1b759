"""The graph of tools, and the changes to it.

- guards.py: checks on a tool before it is registered
- merging.py: which tools are one
- naming.py: free names, and code that defines its function under another name
- decide.py: from a group's work to a change
- iterations.py: the change that begins an iteration
- changes.py: a change as bytes and back
- graph.py: nodes, edges and names at one version
- fold.py: from changes to a graph
- snapshot.py: a version as bytes and back
"""
