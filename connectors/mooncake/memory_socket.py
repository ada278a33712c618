"""The socket through which a mooncake_client shares memory with its dummy clients: one without a file.

Threads: any.
"""


def memory_socket(port):
    """Its name for a client on this port of this machine; the @ is its own."""
    return f"\0@mooncake_client_{port}.sock"
