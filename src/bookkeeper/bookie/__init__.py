"""The storage server."""
