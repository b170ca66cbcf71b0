"""What goes wrong in a run.

fault      one element of a plan
nemesis    draws the plan and carries it out
hardships  more faults: what stands still, is narrow, slow, full or damaged
losses     bookies that lose what they acknowledged, and entries that rot
"""
