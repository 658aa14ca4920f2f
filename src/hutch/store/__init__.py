"""Durable state: which sandboxes and sessions exist, when they end, and what happened to them."""
