"""Runs in a confined process: Pillow and PyAV decode unchecked files.

`parser` is the interface for `toolsvc.confined`; `pictures` and `videos` do the work. The service
names this package and never imports it.
"""
