/* The remote tier of a node: its options, what it counts. Included by tiercel.h; the rules of types.h and
 * tiercel.h hold.
 *
 * A node that is opened with `remote` (tiercel_node_options) stores what becomes resident in a store that
 * other nodes reach, too, and finds what they stored: Mooncake, Valkey or Redis, a folder on a shared file
 * system, or a connector of one's own (connector.h). The environment variable TIERCEL_REMOTE gives an address
 * to every node that is opened without one.
 *   - tiercel_match with may_promote asks the store for what could make the prefix longer and is nowhere
 * here, and brings it up; the ticket is pending meanwhile. tiercel_prefetch does so ahead of a match.
 *   - Only what is whole is served: all shards of all required classes of a page, of one computation, each
 * record checked. Another model, type, form or tenant has other names and finds nothing.
 *   - Every batch has a deadline. A store that hangs, crashes, is unreachable or full is fewer hits
 * (`tier_down`, `too_late`), never an error and never a wait beyond the match's own deadline; it is asked
 * again from time to time and comes back by itself.
 *   - A store may forget anything at any time. Nothing is promised about what it keeps.
 *   - tiercel_invalidate, clear and set_weights_epoch hold there, too, for all nodes (others see it within
 * marker_refresh, five seconds); tiercel_remove of a page clears its namespace there. They return when the
 * store has confirmed, or fail with `unavailable` after record_deadline: then what was cleared may be found
 * there again once this process has ended, unless the call is repeated.
 *   - Connectors are processes of their own, started by the node and ended with it; they listen on nothing of
 * ours. docs/guide/connectors.md says what each store's client opens.
 *
 * Threads: as in tiercel.h.
 */
#ifndef TIERCEL_REMOTE_H
#define TIERCEL_REMOTE_H

#include <tiercel/tiercel.h>

/* NOLINTBEGIN: names and constructs are those of C. */
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tiercel_remote_options {
  uint64_t size;
  /* required: posix:FOLDER, mooncake://HOST:PORT, valkey://HOST:PORT, redis://HOST:PORT, program:PROGRAM;
   * options of the connector may follow: mooncake://HOST:PORT?global_segment_size=4GiB */
  const char* url;
  const char* config; /* more of them, one JSON object; NULL: none. What the url says goes first */
  const char*
      connectors;     /* folder of our connectors; NULL: TIERCEL_CONNECTORS, or where they were installed */
  const char* python; /* that runs them; NULL: TIERCEL_CONNECTOR_PYTHON, or python3 */
  uint64_t exchange_bytes; /* memory shared with the store, beside host_bytes; 0: 64 MiB */
  /* Records from so many bytes on move between host memory and a connector without a copy, so that its
   * process reaches host memory, where that can be shared (TIERCEL_MEMORY_SHARED). 0: 1 MiB. UINT64_MAX:
   * none, and it reaches nothing but its own exchange_bytes. */
  uint64_t direct_bytes;
  uint64_t batch_bytes_max;
  uint64_t batch_deadline_ns;        /* of one batch: what is later is a miss; 0: 1 s */
  uint64_t object_bytes_max;         /* pages are gathered up to this; 0: 8 MiB */
  uint64_t record_deadline_ns;       /* that removals and clears wait for the store; 0: 5 s */
  uint64_t close_deadline_ns;        /* that closing waits for what is being written; 0: 5 s */
  uint32_t object_pages_max;         /* and up to so many, a power of two; 0: 16 */
  uint32_t selective_threshold;      /* through_selective: different requests; 0: 2 */
  tiercel_write_policy write_policy; /* when resident pages are offered to the store; 0: through */
  uint32_t
      wait_ready_ms; /* opening waits so long for a connector to be ready; it goes on in any case. 0: not */
} tiercel_remote_options;

/* Counts are since the node was opened, unless they say "now". Class-sets unless said otherwise. */
typedef struct tiercel_remote_stats {
  uint64_t size;
  /* now */
  uint64_t exchange_bytes, exchange_used_bytes;
  uint64_t unquiet_bytes; /* of it, that a late batch may still write to */
  uint64_t queued_bytes, reading_bytes, writing_bytes;
  uint64_t batches_in_flight;
  /* finding */
  uint64_t lookups, lookups_failed, names_asked, names_known; /* objects asked for; answered from memory */
  uint64_t matches_waited, hit_tokens; /* matches that waited for the store; tokens that came from it */
  /* reading and writing */
  uint64_t reads, read_bytes, reads_failed, objects_read, object_bytes_read;
  uint64_t writes, written_bytes, writes_failed, objects_written, object_bytes_written;
  uint64_t direct_bytes;   /* of objects read and written: without a copy */
  uint64_t writes_refused; /* larger than the exchange takes */
  /* faults */
  uint64_t batches, batches_failed, batches_late, damaged_objects, trips;
  uint64_t starts, kills; /* of the connector's process */
  uint64_t clears;
  uint32_t pid;      /* of the connector; 0: none now */
  uint32_t ready;    /* not 0: the store takes batches now */
  uint32_t down;     /* not 0: it is not asked for a while */
  uint32_t open;     /* not 0: there is a remote tier */
  char why_not[256]; /* not ready: in words; cut to fit */
} tiercel_remote_stats;

/* stats->size must be set. Errors: unsupported: the node was opened without a remote tier. */
TIERCEL_API tiercel_status tiercel_remote_stats_read(tiercel_node* node, tiercel_remote_stats* stats,
                                                     tiercel_error* error);

#ifdef __cplusplus
}
#endif
/* NOLINTEND */
#endif
