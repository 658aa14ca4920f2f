"""The shipped test kit: contract suites and fakes. Nothing shipped imports it; it alone may import pytest."""
