"""What the replication protocol decides: pure values in, decisions out. No I/O, no clock, no await."""
