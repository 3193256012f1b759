"""Pages of the web for a policy: an isolated browser context for each session, in Chromium.

`arguments` is what a policy may ask for, `allow` which hosts it may reach; `chromium` is one
browser, `fleet` which browser a session gets, `visit` what a session does in it, `browser_tool`
what is read of it.
"""
