"""Ledgers written elsewhere become segments of streams, exactly once (spec streams §15.7).

drafts     segments that are still to get their place: what they are, and which place they get; pure
marker     what a sink has published last, and what that means for the next epoch; pure
staging    the ledgers of a run before they are published: whose they are, so that none is lost
staged     writes a draft
publisher  publishes, in one transaction or by an intent that anybody can finish
collecting what runs have left behind
"""
