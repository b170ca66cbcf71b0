"""Streams beside Apache Kafka, on the same machine: `make bench-kafka`.

rows      what is measured, of whom
brokers   three brokers of Kafka's
theirs    a Kafka client that writes and reads; a process of its own
processes programs that are measured: their JSON, and how much memory they took
owner     a writer that is killed, and the one that takes over
report    the figures as JSON, table and picture
"""
