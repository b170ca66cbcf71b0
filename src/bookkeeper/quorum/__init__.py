"""What the replication protocol decides: values in, decisions out. No I/O, no await, no clock."""
