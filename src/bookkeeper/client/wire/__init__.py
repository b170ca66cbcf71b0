"""From requests to bytes on connections to bookies, and answers back (spec wire-protocol, client §12).

pool           connections to all bookies of a client: the one way to ask a bookie something
connection     one TCP connection: sending together, what waits for an answer, timeouts
life           the states that a connection goes through
dialer         what all connections share, and how one is made
attempt        an attempt to connect, and what waits for it
connection_v2  version 2
connection_v3  version 3
calls          what is asked, and who hears the answers
departures     when what is sent leaves
arrivals       when acknowledgements reach the writers
add_channel    one writer's adds to one bookie
progress       is it the bookie that a request waits for?
batch_support  which bookies answer batch reads
results        result codes
"""
