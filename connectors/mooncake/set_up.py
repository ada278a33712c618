"""How a client of Mooncake's library comes to be, for everybody here who has one: the connector, an engine's own pools, the bare client.

The library (0.3.13) ends the process on most calls before a set-up that has succeeded and after close, so nothing else of a client is
called then.
"""

import importlib

from tiercel_connector import Down

PACKAGE = "mooncake-transfer-engine-non-cuda"


def library_store():
    try:
        library = importlib.import_module("mooncake.store")
    except ImportError as error:
        raise Down(f"Mooncake's library is missing: {error}. tools/connectors.sh installs {PACKAGE} and libibverbs1 in an environment; "
                   "start the connector with the Python of that") from None
    return library.MooncakeDistributedStore()


def where(settings):
    """Who is asked: the address of the mooncake_client, or of the master."""
    return settings.client_server_address if settings.standalone_storage else settings.master_server_address


def set_up_store(settings, make_store, shared_bytes):
    """A client that is set up as the settings say. `shared_bytes`: what a dummy client shares with its mooncake_client, in blocks.
    Raises Down with one line; then there is no client, and nothing to close."""
    settings.prepare_environment()
    store = make_store()
    settings.refuse_unreachable()
    if settings.standalone_storage:
        code = store.setup_dummy(shared_bytes, settings.local_buffer_size, settings.client_server_address)
    else:
        tenant = {} if settings.tenant_id == "default" else {"tenant_id": settings.tenant_id}
        code = store.setup(settings.local_hostname, settings.metadata_server, settings.global_segment_size, settings.local_buffer_size,
                           settings.protocol, settings.device_name, settings.master_server_address, **tenant)
    if code != 0:
        raise Down(f"Mooncake's set-up answers {code}: is {where(settings)} a {'mooncake_client' if settings.standalone_storage else 'master'}"
                   f" that answers, of {PACKAGE} in the version that is installed here, with metadata server '{settings.metadata_server}'?")
    return store


def shared_block(store, size, what):
    """The address of a block of Mooncake's allocator, registered whole: the only memory that a dummy client's calls may name. Raises Down."""
    block = store.alloc_from_mem_pool(size)
    if not block:
        raise Down(f"the mooncake_client gives no block of {size} bytes for {what}")
    code = store.register_buffer(block, size)
    if code != 0:
        raise Down(f"the mooncake_client refuses the block of {size} bytes for {what}: {code}")
    return block
