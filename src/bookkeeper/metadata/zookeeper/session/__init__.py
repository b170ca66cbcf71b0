"""One ZooKeeper session behind coroutines (spec metadata §11, §12.3).

client         requests, sessions, and what happens when they end
in_flight      requests that are not answered yet
doubt          whether a session may be gone although no server could say so
watch_point    one node that is watched
keepalive      when the server last surely heard from us
watching       level-triggered watching, made of reads and one-shot hints
listings       directory listings that are kept until they change
removewatches  the one request that kazoo does not know
"""
