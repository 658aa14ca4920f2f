"""What agents hold, over the client only."""
