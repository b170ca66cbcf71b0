"""Endpoints under `/api/v1` (spec autorecovery-admin §9.2).

access         the way to the cluster
bookies        all bookies, the cluster, the settings
ledgers        which there are, and what is in them
recovery       autorecovery, its switches and its auditor
this_bookie    the bookie in this process: state, mode, files
collection     its garbage collection
"""
