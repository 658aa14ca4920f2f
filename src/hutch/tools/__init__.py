"""What agents hold: tools and adapters, each over the client only."""
