/* The plug-in contract: how a node and a connector process talk. A connector moves objects between shared
 * memory and a remote store; it is a process of its own, so that whatever its client library does (crash,
 * hang, scribble) is a timeout for the node and nothing else. docs/guide/connectors.md says how to write one;
 * in Python the package `tiercel_connector` does all of this page.
 *
 * Start. The node starts the connector's program with
 *   - standard input: a pipe. Its first line is the configuration, one JSON object. End of file afterwards
 *     means that the node is gone: the connector ends at once.
 *   - standard output and error: the node's standard error, or where it was told to send them.
 *   - the environment variable TIERCEL_CONNECTOR, e.g. "version=1 exchange=3 requests=4 completions=5":
 *     inherited descriptors of the exchange (a memfd, mapped read-write and shared) and of two eventfds. With
 *     " arena=6:BYTES:OFFSET" region 1 is granted, too: BYTES of that memfd from OFFSET on.
 * The connector answers with a hello (TIERCEL_CONNECTOR_HELLO) on the completion ring: ready, or why not.
 *
 * The exchange is one mapping: tiercel_connector_exchange at offset 0, then the request ring, the completion
 * ring, and the data (region 0). All integers are little-endian, offsets are from the exchange's start unless
 * said otherwise. The header's constant part is written by the node before the start.
 *
 * Rings. A ring is `*_ring_bytes` (a power of two) of messages. Positions are byte counts that only grow;
 * position modulo ring size is the place. A message is a multiple of 8 bytes long, begins at a multiple of 8
 * and is never split: one that would not fit before the ring's end is preceded by a filler
 * (TIERCEL_CONNECTOR_FILLER) up to it; and it has at most half of the ring's bytes, so that it fits at any
 * position. One side alone writes a tail (its own messages), the other alone the head.
 * The writer fills the message, stores the tail (release), then writes 1 to the ring's eventfd; the
 * reader reads its eventfd, then the tail (acquire), takes messages up to it, then stores the head (release).
 * A reader that loads the tail only after it has read the eventfd needs no fence of its own: both system
 * calls order memory. A writer that finds no room waits for nobody: the node refuses the batch, a connector
 * tries again a moment later.
 *
 * Neither side trusts the other: lengths, counts, offsets and regions are checked before use. A node that
 * finds nonsense kills the connector.
 *
 * Threads: one thread of each side writes a ring, one reads one. */
#ifndef TIERCEL_CONNECTOR_H
#define TIERCEL_CONNECTOR_H

#include <stdint.h>

/* NOLINTBEGIN(readability-identifier-naming): the names of C */

#define TIERCEL_CONNECTOR_VERSION 1u
#define TIERCEL_CONNECTOR_MAGIC 0x4e4e4f4352454954ull /* "TIERCONN" in memory */

/* Names of objects: 1 to 120 bytes of [0-9A-Za-z._-]. */
#define TIERCEL_CONNECTOR_NAME_BYTES_MAX 120u
/* Of one batch. */
#define TIERCEL_CONNECTOR_ITEMS_MAX 4096u
#define TIERCEL_CONNECTOR_SEGMENTS_MAX 65536u

typedef struct tiercel_connector_exchange {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes; /* 4096: where the request ring begins */
  uint64_t total_bytes;
  uint64_t request_ring_offset, request_ring_bytes;
  uint64_t completion_ring_offset, completion_ring_bytes;
  uint64_t data_offset, data_bytes; /* region 0 */
  uint8_t reserved1[56];
  uint64_t request_tail; /* the node's; each position has a cache line of its own */
  uint8_t reserved2[56];
  uint64_t request_head; /* the connector's */
  uint8_t reserved3[56];
  uint64_t completion_tail; /* the connector's */
  uint8_t reserved4[56];
  uint64_t completion_head; /* the node's */
  uint8_t reserved5[56];
} tiercel_connector_exchange;

typedef enum tiercel_connector_verb {
  TIERCEL_CONNECTOR_FILLER = 0, /* either ring: skip `bytes` */
  /* Requests. */
  TIERCEL_CONNECTOR_EXISTS = 1, /* items have no segments */
  TIERCEL_CONNECTOR_GET = 2,    /* segments are the destination; their sum is the object's exact size */
  TIERCEL_CONNECTOR_PUT = 3,    /* segments are the source. An object that is there stays as it is: `ok` */
  TIERCEL_CONNECTOR_REMOVE = 4, /* of what is not there: `absent` */
  TIERCEL_CONNECTOR_STATS = 5,  /* no items; answered with a JSON object in `text` */
  TIERCEL_CONNECTOR_PING = 6,   /* no items; says that the connector still reads its ring */
  TIERCEL_CONNECTOR_CANCEL =
      7, /* no items: batch `batch` is wanted no more. It still ends with one completion */
  TIERCEL_CONNECTOR_REPLACE = 8, /* as PUT; an object that is there gets the new bytes */
  /* Completions. */
  TIERCEL_CONNECTOR_HELLO =
      16, /* batch 0, first of all; status 0 or why it cannot serve, in words in `text` */
  TIERCEL_CONNECTOR_DONE = 17, /* of a batch, once: its memory is not touched any more */
} tiercel_connector_verb;

/* A message on the request ring; followed by `items` times tiercel_connector_item, `segments` times
 * tiercel_connector_segment, then the names, then up to 7 zero bytes. */
typedef struct tiercel_connector_request {
  uint32_t bytes; /* of the whole message */
  uint16_t verb;
  uint16_t reserved;
  uint64_t batch;       /* not 0; never used twice in a connector's life, except by the cancel of it */
  uint64_t deadline_ns; /* CLOCK_MONOTONIC; what is not done by then need not be begun (`late`).
                           0 and without meaning where there are no items: stats, ping, cancel */
  uint32_t items, segments;
} tiercel_connector_request;

typedef struct tiercel_connector_item {
  uint32_t name_offset, name_bytes; /* from the message's start */
  uint32_t first_segment, segments; /* of the message's segments; items follow each other without gaps */
} tiercel_connector_item;

typedef struct tiercel_connector_segment {
  uint32_t region; /* 0: the exchange's data; 1: the arena */
  uint32_t reserved;
  uint64_t offset, length; /* within the region; length is not 0 */
} tiercel_connector_segment;

/* A message on the completion ring; followed by `items` times tiercel_connector_result, then the text, then
 * up to 7 zero bytes. */
typedef struct tiercel_connector_completion {
  uint32_t bytes;
  uint16_t verb; /* HELLO, DONE or FILLER */
  uint16_t reserved;
  uint64_t batch;
  int32_t status;      /* of the batch as a whole: 0, or why no item was tried (its items say the same) */
  uint32_t text_bytes; /* at most 4096: for people, or JSON */
  uint32_t items;      /* as many as the request had */
  uint32_t reserved2;
} tiercel_connector_completion;

typedef struct tiercel_connector_result {
  int32_t status; /* tiercel_connector_status */
  uint32_t reserved;
  uint64_t bytes; /* exists: the object's size, or 0: not known; get: what was written; else 0 */
} tiercel_connector_result;

typedef enum tiercel_connector_status {
  TIERCEL_CONNECTOR_OK = 0,
  TIERCEL_CONNECTOR_ABSENT = 1,     /* no such object */
  TIERCEL_CONNECTOR_WRONG_SIZE = 2, /* get: the object has another size; nothing of it counts */
  TIERCEL_CONNECTOR_NO_ROOM = 3,    /* put: the store is full */
  TIERCEL_CONNECTOR_TOO_LARGE = 4,  /* put: it never fits */
  TIERCEL_CONNECTOR_INVALID = 5,    /* the item makes no sense (name, segments, duplicate destination) */
  TIERCEL_CONNECTOR_FAILED = 6,     /* the store or a peer failed at this item */
  TIERCEL_CONNECTOR_DOWN = 7,       /* the store cannot be reached at all */
  TIERCEL_CONNECTOR_LATE = 8,       /* its deadline passed */
  TIERCEL_CONNECTOR_CANCELLED = 9,
} tiercel_connector_status;

/* NOLINTEND(readability-identifier-naming) */

#endif /* TIERCEL_CONNECTOR_H */
