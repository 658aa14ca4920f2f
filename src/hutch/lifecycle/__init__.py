"""What may happen to a sandbox, and when. Pure: events in, a new state and instructions out. No clock, no I/O."""
