"""Clusters of bookie processes on this machine, and demonstrations on them.

cluster      bookie processes: started, killed, stopped, their memory
localbookie  `bookkeeper localbookie`
demo         `bookkeeper demo`
heal_demo    `bookkeeper demo-heal`
spark_demo   `bookkeeper spark demo`
pipeline_demo  `bookkeeper spark demo-pipeline`: the cluster, the kills, the comparison
pipeline     what its driver does, and what must come of it
spark_cluster  a master and workers of Spark
child        a process that does not outlive the one that started it
"""
