"""Wire formats: bytes to messages and back, without I/O.

messages      what clients and bookies say to each other, however it is written
v2            fixed binary layouts
v3/           protobuf messages; schema describes them
frames        messages cut out of a byte stream
large_frames  which requests may be large, told by how they begin
protobuf      its numbers and fields by hand, for all rooms
limits        how large an entry may be
entry         the packaged entry
digest        its check sum, or its message authentication code
auth          what AUTH messages carry
availability  which entries of a ledger a bookie holds
"""
