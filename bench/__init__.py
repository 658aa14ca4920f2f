"""Benchmarks: the promised figures beside their references, in one run. `python -m bench --help`."""
