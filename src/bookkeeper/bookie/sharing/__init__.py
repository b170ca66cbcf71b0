"""What a bookie has only so much of, and who gets it: no peer can take it all, and nothing grows without a bound.

admission  connections: who may connect, and which are closed for others
turns      the loop's time
credit     how much of it a peer may have beside others
memory     the memory of requests and answers under way
shares     something handed out in turn among peers: read slots, large frames
permits    how much is in progress at once
log_rate   log lines that clients can cause
"""
