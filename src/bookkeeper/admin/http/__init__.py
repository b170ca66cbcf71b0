"""HTTP/1.1 over the runtime's network.

server        listens, and closes what is silent
connection    bytes in, one request at a time, bytes out
routes        which endpoint a request is for
messages      requests and answers as endpoints see them
"""
