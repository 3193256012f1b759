"""What runs in a decoding process: Pillow and PyAV on files that nobody has looked into.

`worker` is the process, `confine` what it gives up before its first file, `pictures` and `videos`
the work. The service starts it and never imports it.
"""
