"""What goes wrong in a run.

nemesis    the plan of faults, and how each is done
hardships  more faults: what stands still, is narrow, slow, full or damaged
hostile    peers of bookies that do not behave
moody      parts of an operator's own that fail now and then
"""
