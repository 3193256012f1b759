"""The code that runs inside the jail: nothing but the standard library, from Python 3.9 on.

The host sends these sources through the control socket as one bundle (see
`toolsvc.sandbox.bundle`), so the jail needs no readable copy of this package: it may live in a
home folder that the jail's user cannot open. Modules here import only each other, relatively,
and only those that stand before them in the bundle's order.

`zygote` is the jail's first process, and `wire` what it and its children say to the host. A child
comes by the `forker`, goes behind its `walls` and serves by one of the `drivers`; the zygote's
`watching` sees to its limits. `preload` imports an operator's packages once for all children, and
`probe` is the self-test that runs as foreign code.
"""
