"""One ZooKeeper session behind coroutines (spec metadata §11, §12.3).

client         requests, sessions, and what happens when they end
keepalive      when the server last surely heard from us
watching       level-triggered watching, made of reads and one-shot hints
listings       directory listings that are kept until they change
removewatches  the one request that kazoo does not know
"""
