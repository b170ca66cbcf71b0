"""What the tests against Apache BookKeeper stand on: the peer, and clusters and clients of both kinds."""
