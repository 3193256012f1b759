"""The code that runs inside the jail: nothing but the standard library, from Python 3.9 on.

The host sends these sources through the control socket as one bundle (see
`toolsvc.sandbox.bundle`), so the jail needs no readable copy of this package: it may live in a
home folder that the jail's user cannot open. Modules here import only each other, relatively,
and only those that stand before them in the bundle's order.

`zygote` is the jail's first process, and `wire` its protocol with the host. `forker` makes a child,
`walls` confine it, and one of the `drivers` serves its calls; `watching` enforces its limits.
`preload` imports an operator's packages once for all children. `probe` is the self-test that runs
as foreign code.
"""
