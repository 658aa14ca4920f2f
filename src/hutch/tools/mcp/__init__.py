"""Sandboxes, files and drive for whoever speaks the Model Context Protocol (MCP)."""
