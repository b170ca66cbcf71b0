"""Compatibility with Apache BookKeeper, proven against it. Needs a JDK 17+ and Maven: `make test-interop`."""
