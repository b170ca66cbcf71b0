"""The simulated runtime: a whole cluster in one process, in virtual time, from a seed."""
