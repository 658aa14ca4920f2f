"""What happens: sandboxes, sessions, processes, files, ports, limits and deadlines, wired in `assemble`."""
