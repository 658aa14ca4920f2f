"""Egress by rule: a proxy on each sandbox's own loopback, answered by the host, that passes what its rules name."""
