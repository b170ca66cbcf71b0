"""From a client's bytes to what is done, and back to bytes (spec bookie-server §2).

connection     one client connection: frames become requests; when its socket is read
incoming       its frame that is incomplete, and the memory for it
output         its answers, and what of them the peer has taken
held           what it has received and cannot serve yet
service        what all connections share: where each kind of request is served
handlers       what is done with each kind of request: a row each
adds           adds: storage, journal, acknowledgements
reads          reads, LACs, lists of entries
long_poll      reads that wait for the LAC to move
journaled      WRITE_LAC and FORCE_LEDGER: answered when the journal has it
fencing        after it no normal add of a ledger is accepted
caller         what all of these may know of the connection that asked
ledger_queues  requests that may need the disk: in order within a ledger
replies        answers, by request
error_status   which status a failure is answered with
"""
