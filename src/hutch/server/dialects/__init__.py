"""Other APIs that people have code for, on the same engine."""
