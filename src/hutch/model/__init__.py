"""The words of Hutch: ids, limits, templates, requests, results, events, errors. Frozen, no I/O."""
