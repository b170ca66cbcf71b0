"""This bookie as a member of the cluster, and its directories and disks (spec bookie-server §1).

identity     who it is and where it listens
validate     settings that are wrong only together, or must not be ignored
directories  where things lie, and what must hold before anything is opened
cookies      do directories, configuration and metadata store belong together
dirty        did the last run end orderly
disks        how full they are, whether they are there, and what follows
compaction_switch  stops compaction while disks fill up
mode         does it take writes, and how it is registered
status_file  the mode kept over restarts
exit_code    how the process ends
"""
