"""What runs in a confined process: Pillow and PyAV on files that nobody has looked into.

`parser` is what `toolsvc.confined` asks, `pictures` and `videos` the work. The service names it and
never imports it.
"""
