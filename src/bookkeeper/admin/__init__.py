"""The HTTP API of bookies and of autorecovery, and their metrics (spec autorecovery-admin §9, §10).

service           what is served on which port
http/             HTTP/1.1: connections, requests, answers, which endpoint a request is for
api/              the endpoints
metrics/          what is counted, as Prometheus reads it
overview, sanity, sizes
                  what commands say and do, too
"""
