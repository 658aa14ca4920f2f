"""The host's side of the guest init: what any provider shares that runs `hutch-guest` as PID 1 of its machines."""
