"""What the replication protocol decides: values in, decisions out. No I/O, no await, no clock.

distribution  which bookies of an ensemble hold an entry
coverage      what a set of answers proves
window        every entry that was sent and not yet answered by all of its bookies
ensemble      which bookies a writer sends to, and when it replaces them
reading       which replica to ask next for an entry, and what the answers amount to
recovery      what recovery concludes from the answers it gets
"""
