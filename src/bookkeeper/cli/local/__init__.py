"""Clusters of bookie processes on this machine, and demonstrations on them.

cluster      bookie processes: started, killed, stopped, their memory
localbookie  `bookkeeper localbookie`
demo         `bookkeeper demo`
heal_demo    `bookkeeper demo-heal`
spark_demo   `bookkeeper spark demo`
child        a process that does not outlive the one that started it
"""
