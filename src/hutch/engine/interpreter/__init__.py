"""Code that keeps its state: a Jupyter kernel in the sandbox, driven by lines over its bridge's standard streams."""
