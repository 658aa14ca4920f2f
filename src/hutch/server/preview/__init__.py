"""Ports of sandboxes, each at an origin of its own. Pages from there share nothing with the API or with each other."""
