"""git in a sandbox: what to ask it and how to read its answers (both pure), and the service that does the asking."""
