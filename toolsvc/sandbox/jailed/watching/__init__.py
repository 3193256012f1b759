"""Limits on the resources of sessions: `measure` counts use, `share` divides the processors,
`watch` decides.
"""
