"""What a process counts, as Prometheus reads it (spec autorecovery-admin §10).

page          of one process
exposition    the form
bookie, autorecovery, process, loop
              which metrics there are
"""
