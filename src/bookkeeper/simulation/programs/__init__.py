"""What runs on the machines of a run.

workload    keeps the programs going
users       write, recover, follow, browse, delete
claims      several clients want to be the one writer
hostile     peers of bookies that do not behave
moody       parts of an operator's own that fail now and then
healing     autorecovery
impatience  whatever it waits for may be cancelled
"""
