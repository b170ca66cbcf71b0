"""What must always hold, one small file each. A broken promise raises `history.Violation`.

bookie_local     what a bookie has answered before is there after its start
soundness        every copy that a bookie gives out is what was written
replicas         every entry is where the metadata says, often enough
quorums          what counts as confirmed is on an ack quorum
metadata_states  a ledger's record takes legal steps only
crowding         what some clients do does not harm the others
leaks            when everything is closed nothing is left
"""
