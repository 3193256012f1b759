"""`image`: cuts, resizes and turns a session's images, and takes frames out of its videos.

`tool` speaks with the policy; `action` is how it may ask, `arguments` what it may ask for, `album`
what a session begins with and what it has made since. `workers` are the processes that decode.
What runs in them is `decoding`, the one part that imports Pillow and PyAV: this package's other
modules never look into a file.
"""
