"""What the tests against Apache BookKeeper stand on: the peer, clusters of both kinds of bookies, clients of both kinds."""
