"""What agents hold: over the client only, so that all of it works in this process and on a server."""
