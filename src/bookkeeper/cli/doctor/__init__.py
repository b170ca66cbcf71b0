"""`bookkeeper doctor`: what is wrong with a cluster, and what to do.

command  looks, and says what was found
"""
