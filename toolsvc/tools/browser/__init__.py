"""Pages of the web for a policy: an isolated browser context for each session, in Chromium.

`arguments` defines the policy's requests, and `allow` the hosts that it may reach. `chromium` is
one browser, `fleet` assigns browsers to sessions, `visit` is one session in a browser, and
`browser_tool` is the tool.
"""
