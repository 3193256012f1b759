"""The code that runs inside the jail: nothing but the standard library, from Python 3.9 on.

The host sends these sources through the control socket as one bundle (see
`toolsvc.sandbox.bundle`), so the jail needs no readable copy of this package: it may live in a
home folder that the jail's user cannot open. Modules here import only each other, relatively,
and only those that stand before them in the bundle's order.
"""
