"""Where a trajectory's commands run, and where they are verified: containers, pods, the sandbox.

`box` says what a box and its runner are. `container` is what boxes in containers have in common,
whether docker's and podman's (`cli`) or a cluster's (`kubernetes`); `local` makes boxes of the
sandbox. `starts` bounds how many start at once, and tries again.
"""
