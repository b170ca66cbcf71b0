"""Under-replication as nodes (spec metadata §9).

underreplication  which ledgers need repair, and who repairs them
switches          cluster-wide switches and values
auditor           election of the auditor
"""
