/* Host pools of an engine that keeps its own, and copies between pools of any layout: described once from the
 * model, allocated, shared with a second process, addressed page by page, copied layer by layer. Part of the
 * C ABI, version 1; included by tiercel.h, whose rules hold (threads, ownership, arrays, errors). No node is
 * needed.
 *
 * Pools, buffers, layers and layouts: docs/guide/layouts.md. A pool is one group of the model; it is numbered
 * in its group of pools from 0, in the order in which it was added, and has a name ("full", "window4096",
 * "state", "index_k", "draft" …). Pages are slots of a pool; of a state they are snapshots. Memory is of one
 * kind for all pools of a group: a pool has no say in it.
 */
#ifndef TIERCEL_HOST_POOLS_H
#define TIERCEL_HOST_POOLS_H

#include <tiercel/tiercel.h>

/* NOLINTBEGIN: names and constructs are those of C. */
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tiercel_host_pools tiercel_host_pools;                 /* tiercel_host_pools_release */
typedef struct tiercel_host_pools_builder tiercel_host_pools_builder; /* tiercel_host_pools_builder_release */
typedef struct tiercel_sequence tiercel_sequence;                     /* tiercel_sequence_release */
typedef struct tiercel_copy tiercel_copy;                             /* tiercel_copy_release */

/* More kinds of memory (tiercel_memory_kind) that host pools may have; a node's arena has none of them. */
enum {
  TIERCEL_MEMORY_PINNED = 4,  /* registered with a device */
  TIERCEL_MEMORY_EXTERNAL = 5 /* the caller's own: engine pools, for example */
};
#define TIERCEL_NO_GROUP UINT32_MAX  /* a pool of slots without bytes: an anchor of other pools */
#define TIERCEL_ALL_POOLS UINT32_MAX /* of a list: of every pool */

/* Pages of one pool, by its name. */
typedef struct tiercel_pool_pages {
  const char* pool;
  uint64_t pages;
} tiercel_pool_pages;

/* Exactly one of pages, total_bytes and device_ratio says how large the pools are. */
typedef struct tiercel_host_pools_options {
  uint64_t size;
  const char* layout; /* of every pool that names no other: a name or an axis order; required */
  /* The one kind of memory, by whoever names it; what is said twice must agree, and somebody must say it:
   * "anonymous", "hugepage", "shared" (also "shm", "memfd"), "pinned", "external". */
  const char *memory, *allocator;
  const char* backend; /* the storage back end's name: never chooses memory */
  const char*
      extra_config;     /* a JSON object with "memory", "allocator", "backend"; or "@FILE", JSON or TOML */
  const char* numa;     /* NULL: the system's rule; "interleave", "bind 1", "per_shard" */
  uint64_t pages;       /* of every pool with slots of its own */
  uint64_t total_bytes; /* at most so many mapped, all pools and rounding included, split by what a resume
                           point costs; at least a page or snapshot of each */
  uint64_t full_pages_per_resume_point;   /* with total_bytes: pages of full groups for each snapshot and
                                             window; 0: 1 */
  double device_ratio;                    /* so many times the pages of the device's pools */
  const tiercel_pool_pages* device_pools; /* of those, by pool with slots of its own; open and attach only */
  uint64_t device_pool_count;
  const tiercel_segment* allocations; /* external: what the caller allocated, whole; stays until release */
  uint64_t allocation_count;
  tiercel_progress progress; /* while memory is touched, on the calling thread; not 0 gives up */
  void* progress_context;
  uint32_t first_layer, end_layer;      /* layers of this pipeline stage, [first, end); 0 and 0: all */
  uint32_t shard, shards;               /* numa per_shard; 0 and 0: the only one */
  uint32_t touch_threads, copy_threads; /* 0: one for each processor, at most 16; 0: two */
  uint32_t device;                      /* number of a CUDA device: pinned: for which; on_device: whose */
  uint32_t on_device;                   /* external: not 0: the allocations are addresses of that device */
} tiercel_host_pools_options;

typedef uint32_t tiercel_buffer_source;
enum {
  TIERCEL_BUFFER_OWN = 0,     /* the group allocates it */
  TIERCEL_BUFFER_SAME_AS = 1, /* bytes of a buffer of this pool or of one added before */
  TIERCEL_BUFFER_AT = 2       /* external: the caller's, inside one of its allocations; NULL and 0: absent */
};
typedef struct tiercel_buffer_place {
  void* data; /* AT */
  uint64_t size;
  const char* pool; /* SAME_AS */
  uint64_t offset;
  uint32_t buffer;
  tiercel_buffer_source source;
  uint64_t reserved;
} tiercel_buffer_place;

typedef struct tiercel_host_pool_options {
  uint64_t size;
  const char* name;                    /* NULL: by its group */
  const char* layout;                  /* NULL: the group's */
  const char* slots_of;                /* the pool, added before, whose slots it uses; NULL: it has its own */
  uint64_t pages;                      /* of this pool, where the options say `pages`; 0: those */
  uint64_t device_pages;               /* of the device's pool, where they say `device_ratio` */
  uint64_t pages_per_resume_point;     /* where they say `total_bytes`; 0: by its kind */
  const tiercel_buffer_place* buffers; /* one for each buffer of its layout; NULL and 0: all its own */
  uint64_t buffer_count;
  uint32_t group; /* of the spec, from 0, or TIERCEL_NO_GROUP */
  uint32_t reserved;
} tiercel_host_pool_options;

typedef struct tiercel_host_pools_info {
  uint64_t size;
  uint64_t pools, ranges;
  uint64_t required_bytes; /* the union of all buffers: what two pools name counts once */
  uint64_t mapped_bytes;   /* what is claimed for that */
  uint64_t huge_bytes;     /* of it, on huge pages */
  uint8_t fingerprint[32]; /* of the plan: two processes that have the same see the same bytes */
  tiercel_memory_kind memory_kind;
  tiercel_page_kind page_kind;
  uint32_t layer_end;     /* layers that a load counts: 1 + the largest id of any pool */
  int32_t fd;             /* of shared memory, to hand over; the group's, do not close it; else -1 */
  uint32_t numa_as_asked; /* not 0: every page that was looked at lies where `numa` said */
  uint32_t reserved;
} tiercel_host_pools_info;

typedef struct tiercel_host_pool_info {
  uint64_t size;
  const char *name, *layout; /* live as long as the group; the layout as an axis order */
  uint64_t pages, page_bytes;
  uint64_t page_tokens; /* 0: a page is a snapshot */
  uint64_t tokens_per_entry;
  uint64_t buffers, layers, components;
  uint32_t group, class_id; /* class: of the form of the same spec */
  uint32_t slots_of;        /* number of the pool with the slots, maybe itself */
  uint32_t replicated;
} tiercel_host_pool_info;

typedef struct tiercel_pool_buffer {
  void* data; /* NULL: no bytes */
  uint64_t size;
  uint64_t offset;     /* in its allocation */
  uint32_t allocation; /* number of the range that is registered */
  uint32_t pool, buffer;
  uint32_t reserved[3];
} tiercel_pool_buffer;

/* A run of bytes of one page. Those of one component are one object: never joined with another's. */
typedef struct tiercel_pool_segment {
  void* data;
  uint64_t size;
  uint64_t offset; /* in its allocation */
  uint32_t allocation, buffer;
  uint32_t component; /* of the pool, from 0 */
  uint32_t class_id;
  uint64_t reserved;
} tiercel_pool_segment;

/* ---- building ---- */
/* All pools of the model at once: each group of the spec one pool; groups that live together share slots.
 * Waits: while memory is touched; `progress` may give it up. Errors: invalid_argument naming the option or
 * pool, what was wanted and what was given; resource_exhausted: the machine has not so much memory (asked
 * before any is touched, nothing is left behind); unsupported or unavailable:
 * pinned without a CUDA device; cancelled. Cost: claims and touches all of it. */
TIERCEL_API tiercel_status tiercel_host_pools_open(const tiercel_spec* spec,
                                                   const tiercel_host_pools_options* options,
                                                   tiercel_host_pools** pools, tiercel_error* error);
/* Piece by piece, as engines know their pools. Nothing is sized, allocated or shared before seal; after it
 * nothing can be added (failed_precondition). A builder is for one thread at a time. add: *pool is the number
 * (may be NULL); a pool that is refused is not in. seal Waits as open does; one that fails leaves the builder
 * as it is. Errors: as open. */
TIERCEL_API tiercel_status tiercel_host_pools_builder_create(const tiercel_spec* spec,
                                                             const tiercel_host_pools_options* options,
                                                             tiercel_host_pools_builder** builder,
                                                             tiercel_error* error);
TIERCEL_API tiercel_status tiercel_host_pools_builder_add(tiercel_host_pools_builder* builder,
                                                          const tiercel_host_pool_options* options,
                                                          uint32_t* pool, tiercel_error* error);
TIERCEL_API tiercel_status tiercel_host_pools_builder_seal(tiercel_host_pools_builder* builder,
                                                           tiercel_host_pools** pools, tiercel_error* error);
TIERCEL_API void tiercel_host_pools_builder_release(tiercel_host_pools_builder* builder);
/* The same pools in another process: fd and `fingerprint` (the 32 bytes that describe told the owner) from
 * the owner, spec and options the owner's (all pools at once, kind shared). fd stays the caller's. Waits:
 * while page tables are filled. Errors: also invalid_argument: another fingerprint, so other pools would be
 * seen in the same bytes; failed_precondition: the fd may only be read. Slots are the owner's to give: this
 * process takes none. `progress`, `touch_threads` and `numa` are not used. */
TIERCEL_API tiercel_status tiercel_host_pools_attach(const tiercel_spec* spec,
                                                     const tiercel_host_pools_options* options, int fd,
                                                     const uint8_t* fingerprint, tiercel_host_pools** pools,
                                                     tiercel_error* error);
/* The handle; memory goes with the last sequence and copy of the group. */
TIERCEL_API void tiercel_host_pools_release(tiercel_host_pools* pools);

/* ---- what there is; constant ---- */
TIERCEL_API tiercel_status tiercel_host_pools_describe(const tiercel_host_pools* pools,
                                                       tiercel_host_pools_info* info, tiercel_error* error);
TIERCEL_API tiercel_status tiercel_host_pools_pool(const tiercel_host_pools* pools, uint32_t pool,
                                                   tiercel_host_pool_info* info, tiercel_error* error);
/* Global ids, ascending; those that the pool lacks are skipped for it. */
TIERCEL_API tiercel_status tiercel_host_pools_layers(const tiercel_host_pools* pools, uint32_t pool,
                                                     uint32_t* layers, uint64_t capacity, uint64_t* count,
                                                     tiercel_error* error);
TIERCEL_API tiercel_status tiercel_host_pools_buffers(const tiercel_host_pools* pools, uint32_t pool,
                                                      tiercel_pool_buffer* buffers, uint64_t capacity,
                                                      uint64_t* count, tiercel_error* error);
/* What to register with a device or network: each allocation once and whole, never a view of it. */
TIERCEL_API tiercel_status tiercel_host_pools_ranges(const tiercel_host_pools* pools, tiercel_segment* ranges,
                                                     uint64_t capacity, uint64_t* count,
                                                     tiercel_error* error);
/* Where the bytes of one page lie, in the order of memory inside each component. Cost: O(segments). */
TIERCEL_API tiercel_status tiercel_host_pools_segments(const tiercel_host_pools* pools, uint32_t pool,
                                                       uint64_t page, tiercel_pool_segment* segments,
                                                       uint64_t capacity, uint64_t* count,
                                                       tiercel_error* error);
/* Whether every segment of every page of `pool` begins at a multiple of `alignment` (a power of two) in its
 * allocation and is one long: what direct I/O asks for. */
TIERCEL_API tiercel_status tiercel_host_pools_is_aligned(const tiercel_host_pools* pools, uint32_t pool,
                                                         uint64_t alignment, uint32_t* aligned,
                                                         tiercel_error* error);
/* The whole plan as text, one fact a line; as tiercel_spec_to_json gives text. */
TIERCEL_API tiercel_status tiercel_host_pools_text(const tiercel_host_pools* pools, char* text,
                                                   uint64_t capacity, uint64_t* count, tiercel_error* error);

/* ---- slots and sequences ---- */
/* Slots of one pool with slots of its own; the lowest free ones first. */
typedef struct tiercel_slot_list {
  uint64_t* slots; /* take: to be filled; give: read */
  uint64_t count;
  uint32_t pool;
  uint32_t reserved;
} tiercel_slot_list;
/* All lists or nothing. Errors: resource_exhausted naming the pool; invalid_argument, failed_precondition
 * (given back twice, or a page of a sequence). Cost: O(slots). */
TIERCEL_API tiercel_status tiercel_host_pools_take(tiercel_host_pools* pools, const tiercel_slot_list* lists,
                                                   uint64_t count, tiercel_error* error);
TIERCEL_API tiercel_status tiercel_host_pools_give(tiercel_host_pools* pools, const tiercel_slot_list* lists,
                                                   uint64_t count, tiercel_error* error);

/* A sequence whose whole KV stays in host memory: it grows token by token, what was appended stays where it
 * is, and it serves every pool that shares the slots of `pool`. */
TIERCEL_API tiercel_status tiercel_sequence_open(tiercel_host_pools* pools, uint32_t pool,
                                                 tiercel_sequence** sequence, tiercel_error* error);
/* Room for `tokens` more, whose token slots (page × page_tokens + place in the page) are written to `slots`,
 * one each (may be NULL). Errors: resource_exhausted: too few pages are free; nothing has changed. */
TIERCEL_API tiercel_status tiercel_sequence_append(tiercel_sequence* sequence, uint64_t tokens,
                                                   uint64_t* slots, tiercel_error* error);
TIERCEL_API tiercel_status tiercel_sequence_pages(const tiercel_sequence* sequence, uint64_t* pages,
                                                  uint64_t capacity, uint64_t* count, tiercel_error* error);
/* The bytes of one token's entry in `pool`, one component of one global layer. Errors: not_found: not
 * appended, or the pool has no such layer. */
TIERCEL_API tiercel_status tiercel_sequence_entry(const tiercel_sequence* sequence, uint32_t pool,
                                                  uint32_t component, uint32_t layer, uint64_t token,
                                                  tiercel_pool_segment* segments, uint64_t capacity,
                                                  uint64_t* count, tiercel_error* error);
/* All its pages are free again. */
TIERCEL_API void tiercel_sequence_release(tiercel_sequence* sequence);

/* ---- copies ---- */
/* Granules of one pair of pools: source[i] goes to target[i]. A granule is a page (of the smaller of the two
 * page sizes), a snapshot, or granule_tokens tokens: granule g of pages of P tokens lies in page
 * g / (P / granule_tokens). */
typedef struct tiercel_copy_part {
  const uint64_t *source, *target;
  uint64_t count;
  uint64_t granule_tokens; /* 0: the smaller page; 1: token slots */
  uint32_t source_pool, target_pool;
  uint64_t reserved[2];
} tiercel_copy_part;

typedef struct tiercel_copy_options {
  uint64_t size;
  const tiercel_host_pools* const* sources; /* one group for each rank that wrote; usually one */
  uint64_t source_count;
  tiercel_host_pools* target;
  const tiercel_copy_part* parts;
  uint64_t part_count;
  const tiercel_spec* whole; /* the model at tp 1, where source and target ranks differ; else NULL */
  uint32_t target_ranks,
      target_rank; /* with `whole`: which rank of how many the target is; 0 and 0: 0 of 1 */
  uint32_t sums;   /* not 0: tiercel_copy_sums gives checksums */
  uint32_t reserved;
} tiercel_copy_options;

/* Begins, on the target group's threads, lower layers first. Each layer that is whole has its event; layers
 * that no pool has come at once. Errors, before any byte is written: invalid_argument (lists, indices, a
 * target granule twice, tokens of a pool that this copy writes and reads or writes twice, pools that hold
 * other things). Requires: nobody writes a source, or reads a target before its layer's event; pools that are
 * views of the same bytes are not on both sides. Cost: O(granules log granules + runs). */
TIERCEL_API tiercel_status tiercel_copy_start(const tiercel_copy_options* options, tiercel_copy** copy,
                                              tiercel_error* error);
/* Waits until layer `layer` of every part is in place. Errors: deadline_exceeded; cancelled, or what ended
 * the copy before. */
TIERCEL_API tiercel_status tiercel_copy_wait_layer(tiercel_copy* copy, uint32_t layer, uint64_t deadline_ns,
                                                   tiercel_error* error);
/* Waits until the copy has ended and touches nothing any more. Errors: the same. */
TIERCEL_API tiercel_status tiercel_copy_wait(tiercel_copy* copy, uint64_t deadline_ns, tiercel_error* error);
/* No event is given from now on; the copy ends at a granule. Wait says when it has. */
TIERCEL_API tiercel_status tiercel_copy_cancel(tiercel_copy* copy, tiercel_error* error);
/* Layers whose events were given, ascending: their bytes are whole however the copy ended. */
TIERCEL_API tiercel_status tiercel_copy_layers(const tiercel_copy* copy, uint32_t* layers, uint64_t capacity,
                                               uint64_t* count, tiercel_error* error);
/* CRC-32C of each granule of part `part`, of a layer whose event was given, in the order of its lists:
 * components in order, in each its bytes by ascending source address. Errors: failed_precondition: not asked
 * for, or not yet; not_found: the part has no such layer. */
TIERCEL_API tiercel_status tiercel_copy_sums(const tiercel_copy* copy, uint64_t part, uint32_t layer,
                                             uint32_t* sums, uint64_t capacity, uint64_t* count,
                                             tiercel_error* error);
/* Cancels it. Waits: until no byte of it is touched any more. */
TIERCEL_API void tiercel_copy_release(tiercel_copy* copy);

/* ---- with a node ---- */
/* Registers the pools of a class as the engine's memory: as tiercel_register_memory, with every address taken
 * from the plan. The group must stay until it is unregistered. Errors: also invalid_argument: a group of the
 * class has no pool here, or its pools are not of this form's model; resource_exhausted: a layout that takes
 * a record into more than 2^22 runs. */
TIERCEL_API tiercel_status tiercel_register_host_pools(tiercel_form* form, uint32_t class_id, uint32_t shard,
                                                       tiercel_host_pools* pools, tiercel_error* error);

#ifdef __cplusplus
}
#endif
/* NOLINTEND */
#endif
