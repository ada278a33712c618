/* Values of reservations, of writers in other processes, and of commits. Include tiercel.h, which says what
 * the calls do with them; the rules of types.h hold.
 *
 * Threads: plain values.
 */
#ifndef TIERCEL_WRITERS_H
#define TIERCEL_WRITERS_H

#include <tiercel/types.h>

/* NOLINTBEGIN: names and constructs are those of C. */
#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t tiercel_outcome; /* of one store item */
enum {
  TIERCEL_ITEM_ACCEPTED = 0,
  TIERCEL_ITEM_COMMITTED = 1,       /* its bytes are in the cache; visible when the rest of its page is */
  TIERCEL_ITEM_ALREADY_PRESENT = 2, /* bytes untouched, counts as a use */
  TIERCEL_ITEM_BEING_WRITTEN = 3,   /* by somebody else, or by an earlier item of the batch */
  TIERCEL_ITEM_NO_ROOM = 4,
  TIERCEL_ITEM_TOO_LARGE = 5,
  TIERCEL_ITEM_QUOTA = 6,
  TIERCEL_ITEM_RATE_LIMITED = 7,
  TIERCEL_ITEM_STALE = 8, /* page removed or replaced, namespace cleared, weights updated since */
  TIERCEL_ITEM_EXPIRED = 9,
  TIERCEL_ITEM_ABORTED = 10, /* commit: another part of its class-set has not arrived */
  TIERCEL_ITEM_FAILED = 11,
  TIERCEL_ITEM_INVALID = 12,     /* class, shard, slot, bytes, length or parent make no sense */
  TIERCEL_ITEM_NOT_ARRIVED = 13, /* its commit did not name it */
  TIERCEL_ITEM_DAMAGED = 14      /* commit: its bytes are not those of the writer's checksums; not visible */
};

/* A piece of a reserved record in the arena's file. Pieces of one component are one object. */
typedef struct tiercel_file_segment {
  uint64_t offset, length;   /* bytes of the file */
  uint64_t payload_offset;   /* of its first byte in the payload in record order */
  uint32_t component, layer; /* as tiercel_form_runs numbers them */
  int32_t fd;                /* of the arena; the node's: hand it over, do not close it */
  uint32_t reserved;
} tiercel_file_segment;

/* An item of a reservation that is whole in the arena. */
typedef struct tiercel_arrival {
  uint64_t item; /* its number in the reservation */
  /* The writer's: one for each layer of the item's class, ascending: tiercel_crc32c over the layer's bytes in
   * record order (its components one behind the other). NULL and 0: computed from the bytes in the arena. */
  const uint32_t* checksums;
  uint64_t checksum_count;
  uint64_t reserved;
} tiercel_arrival;

/* Also of tiercel_suspend, which knows no arrivals. */
typedef struct tiercel_commit_options {
  uint64_t size;
  tiercel_cq* cq;
  uint64_t user_data;
  const tiercel_arrival* arrivals; /* NULL: everything has arrived; an empty list: nothing has */
  uint64_t arrival_count;
  uint32_t trust_checksums; /* not 0: those given become the record's, unread; 0: they are compared */
  uint32_t reserved;
} tiercel_commit_options;

/* Another process that may write to slots. */
typedef struct tiercel_writer_info {
  uint64_t reservations;                      /* neither committed nor given up */
  uint64_t reserved_bytes, quarantined_bytes; /* payload */
  uint32_t pid;
  uint32_t reserved[3];
} tiercel_writer_info;

#ifdef __cplusplus
}
#endif
/* NOLINTEND */
#endif
