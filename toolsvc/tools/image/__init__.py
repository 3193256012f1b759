"""`image`: cuts, resizes and turns a session's images, and takes frames out of its videos.

`image_tool` speaks with the policy; `action` is how it may ask, `arguments` what it may ask for,
`album` what a session begins with and what it has made since. `decoding` is the one part that
imports Pillow and PyAV, and runs in processes of `toolsvc.confined`: this package's other modules
never look into a file. `wire` is what is said to it and what it answers, `boxes` where to cut,
`types` the words of both sides.
"""
