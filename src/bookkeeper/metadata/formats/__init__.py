"""Everything that is stored in the metadata store, as bytes (spec metadata §2, §3, §4.3, §7.3, §8, §9.1).

ledger            a ledger's record, in three versions
cookie            which bookie a set of directories belongs to
service_info      what a bookie publishes about itself
layout            which factory lays out the ledgers of a cluster
underreplication  marks, locks and votes of repair
messages          the protobuf types of all these
schema            the little of protobuf that they use, as data
wire, text        its two forms
"""
