"""When to go on.

backoff     pauses that grow while something keeps failing
rate_limit  so many units a second
wait_queue  lines of tasks that wait for their turn
"""
