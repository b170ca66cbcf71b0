"""Files of the operating system.

files       reading, writing and syncing them
direct_io   writing past their page cache
kernel_sync syncing them without a thread
"""
