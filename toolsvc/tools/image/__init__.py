"""`image`: cuts, resizes and turns a session's images, and takes frames out of its videos.

`image_tool` speaks with the policy, `arguments` is what the policy may ask for, and `album` holds a
session's images. Only `decoding` imports Pillow and PyAV, and it runs in processes of
`toolsvc.confined`: the other modules never look into a file. `wire` has its requests and answers,
`boxes` the places to cut, `types` the words of both sides.
"""
