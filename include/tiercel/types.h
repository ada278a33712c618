/* Values of the C ABI of Tiercel: codes, kinds, option and result structs (those of reservations and commits
 * are in writers.h, those of the disk tier in disk.h). Include tiercel.h, which says what the calls do with
 * them.
 *
 * Rules that hold for all of them:
 *   - Sizes, counts and lengths are 64 bits wide. Lengths and page numbers count whole pages; tokens and
 * bytes say so in their names or beside them. Times are nanoseconds (`_ns`) from the call on; those that the
 * library tells are on the node's clock.
 *   - An option struct begins with `size` = sizeof of the struct that the caller was compiled with. A shorter
 * one than the library's is filled with defaults; in a longer one every byte that the library does not know
 * must be zero (else invalid_argument: it asks for something that this library cannot do). Zero is the
 * default of every option unless the field says otherwise.
 *   - Structs of results that may grow begin with `size` too: the library fills what fits.
 *   - Structs that travel in arrays (items, targets, completions) keep their size in version 1; `reserved`
 * fields are their room to grow. In what goes in they must be zero, in what comes out they are. Bare lists
 * and bytes (tiercel_bytes, tiercel_segment, tiercel_record_memory, tiercel_extras, tiercel_pair,
 * tiercel_pool_pages) need none.
 *   - Enumerations are uint32_t. A value not listed here may come from a later library: treat it as unknown.
 * As an input it is invalid_argument. Values from 0x40000000 on are never given out.
 *   - Texts are UTF-8, end with NUL and are copied by the call that takes them.
 *
 * Threads: plain values.
 */
#ifndef TIERCEL_TYPES_H
#define TIERCEL_TYPES_H

#include <stdint.h>

/* NOLINTBEGIN: names and constructs are those of C. */
#ifdef __cplusplus
extern "C" {
#endif

#define TIERCEL_ABI_VERSION 1

#define TIERCEL_SKIP UINT64_MAX               /* slot of a load target: this page is not wanted there */
#define TIERCEL_NO_LIMIT UINT64_MAX           /* tokens */
#define TIERCEL_FOREVER ((uint64_t)INT64_MAX) /* nanoseconds; a deadline beyond it counts as it */
#define TIERCEL_WHOLE UINT32_MAX              /* component: the whole record; layer: all layers */
#define TIERCEL_ALL_RANKS UINT32_MAX          /* rank in a topology: this process holds all of them */
#define TIERCEL_ENUM_RESERVED 0x40000000u

/* ---- outcomes of calls ---- */
typedef uint32_t tiercel_status;
enum {
  TIERCEL_OK = 0,
  TIERCEL_INVALID_ARGUMENT = 1,    /* the caller's mistake: the request makes no sense */
  TIERCEL_FAILED_PRECONDITION = 2, /* the caller's mistake: not in this state */
  TIERCEL_NOT_FOUND = 3,           /* ordinary: nothing there (any more) */
  TIERCEL_ALREADY_EXISTS = 4,      /* ordinary */
  TIERCEL_CANCELLED = 5,           /* ordinary: somebody asked for it */
  TIERCEL_RESOURCE_EXHAUSTED = 6,  /* a budget or a queue is full: ask for less, or later */
  TIERCEL_UNAVAILABLE = 7,         /* not now; go on without the cache */
  TIERCEL_DEADLINE_EXCEEDED = 8,   /* time ran out; what was asked goes on unless the call says otherwise */
  TIERCEL_IO_ERROR = 9,            /* this copy of the data is unusable */
  TIERCEL_DATA_CORRUPT = 10,       /* the copy was damaged and has been dropped */
  TIERCEL_UNSUPPORTED = 11,        /* fixed in meaning, not built in this library */
  TIERCEL_INTERNAL = 12,           /* ours: please report */
  TIERCEL_WRONG_PROCESS = 13       /* the handle was made before a fork and is used in the child */
};

/* Where a failing call says what was wrong: one line, what, where, wanted, got, what to do; cut to fit,
 * always ended by NUL. The caller owns it; every call takes NULL instead. Untouched by calls that succeed. */
typedef struct tiercel_error {
  tiercel_status code;
  uint32_t reserved;
  char message[504];
} tiercel_error;

/* ---- handles: made by a call, given back by the call named beside them; any order ---- */
typedef struct tiercel_node tiercel_node;                 /* tiercel_node_close */
typedef struct tiercel_session tiercel_session;           /* tiercel_session_close */
typedef struct tiercel_spec tiercel_spec;                 /* tiercel_spec_release */
typedef struct tiercel_spec_builder tiercel_spec_builder; /* tiercel_spec_builder_release */
typedef struct tiercel_form tiercel_form;                 /* tiercel_form_release */
typedef struct tiercel_namespace tiercel_namespace;       /* tiercel_namespace_release */
typedef struct tiercel_ticket tiercel_ticket;             /* tiercel_ticket_release */
typedef struct tiercel_operation tiercel_operation;       /* tiercel_operation_release */
typedef struct tiercel_reservation tiercel_reservation;   /* tiercel_reservation_release */
typedef struct tiercel_cq tiercel_cq;                     /* tiercel_cq_release */

typedef struct tiercel_bytes {
  const void* data; /* may be NULL when size is 0 */
  uint64_t size;
} tiercel_bytes;

/* ---- node ---- */
typedef uint32_t tiercel_policy;
enum {
  TIERCEL_POLICY_DEFAULT = 0, /* lru */
  TIERCEL_POLICY_LRU = 1,
  TIERCEL_POLICY_S3FIFO = 2,
  TIERCEL_POLICY_TINYLFU = 3,
  TIERCEL_POLICY_VALUE = 4
};
typedef uint32_t tiercel_write_policy; /* what tiercel_offer wants, and when */
enum {
  TIERCEL_WRITE_DEFAULT = 0, /* through */
  TIERCEL_WRITE_THROUGH = 1,
  TIERCEL_WRITE_THROUGH_SELECTIVE = 2,
  TIERCEL_WRITE_BACK = 3
};
typedef uint32_t tiercel_verification; /* of reads out of the host tier */
enum {
  TIERCEL_VERIFY_DEFAULT = 0, /* always */
  TIERCEL_VERIFY_ALWAYS = 1,
  TIERCEL_VERIFY_ONCE_PER_RESIDENCY = 2,
  TIERCEL_VERIFY_SAMPLED = 3
};
typedef uint32_t tiercel_retention; /* of windows and snapshots */
enum { TIERCEL_RETAIN_DEFAULT = 0 /* at_points */, TIERCEL_RETAIN_AT_POINTS = 1, TIERCEL_RETAIN_ALL = 2 };
typedef uint32_t tiercel_threading;
enum {
  TIERCEL_THREADING_DEFAULT = 0, /* control */
  TIERCEL_THREADING_CONTROL = 1, /* open starts one control thread, and copy threads */
  TIERCEL_THREADING_CALLER = 2   /* no thread: tiercel_poll and calls that wait do all work, copies too */
};
typedef uint32_t tiercel_memory_kind; /* of the arena; host_pools.h has more */
enum {
  TIERCEL_MEMORY_DEFAULT = 0, /* anonymous */
  TIERCEL_MEMORY_ANONYMOUS = 1,
  TIERCEL_MEMORY_HUGEPAGE = 2, /* huge pages, as far as the machine gives any; stats name the kind got */
  TIERCEL_MEMORY_SHARED = 3    /* can be mapped by other processes */
};
typedef uint32_t tiercel_page_kind; /* that the arena really got */
enum { TIERCEL_PAGES_UNKNOWN = 0, TIERCEL_PAGES_SMALL = 1, TIERCEL_PAGES_TRANSPARENT_HUGE = 2 };
enum { TIERCEL_PAGES_HUGETLB = 3, TIERCEL_PAGES_MIXED = 4 };
typedef uint32_t tiercel_host_mode;
enum {
  TIERCEL_HOST_DEFAULT = 0, /* cache */
  TIERCEL_HOST_CACHE = 1,
  TIERCEL_HOST_BUFFER_ONLY = 2, /* unsupported in this library */
  TIERCEL_HOST_NONE = 3         /* unsupported in this library */
};
/* Called on the thread that opens a node or host pools, while it does: `done` of `total` bytes are touched.
 * Not 0 gives up: open ends with cancelled. */
typedef int (*tiercel_progress)(void* context, uint64_t done, uint64_t total);

struct tiercel_disk_options;
struct tiercel_remote_options;
/* Defaults and what is seen when one bites: docs/guide/defaults.md. */
typedef struct tiercel_node_options {
  uint64_t size;
  uint64_t host_bytes; /* required: extents, index, history, advice; not what else a page costs */
  uint64_t extent_bytes;
  uint64_t index_pages_max, history_entries, advice_entries;
  uint64_t record_bytes_max, pages_max; /* 0: no bound of their own */
  uint64_t snapshot_budget;             /* 0: no bound */
  uint64_t in_flight_bytes_max, move_bytes_max;
  uint64_t load_back_threshold_tokens; /* 1: every hit is worth a load */
  uint64_t ticket_ttl_ns, reservation_ttl_ns, operation_deadline_ns;
  uint64_t seed;       /* 0: a random one */
  double client_share; /* above 0, at most 1 */
  tiercel_progress progress;
  void* progress_context;
  uint32_t operations_max, tickets_max, requests_max, completions_max, events_max;
  uint32_t sampled_one_in, selective_threshold;
  uint32_t copy_threads;  /* 0: one under `control`, none under `caller` */
  uint32_t touch_threads; /* that touch the arena while it is opened; 0: one for each processor, at most 16 */
  tiercel_policy policy;
  tiercel_write_policy write_policy;
  tiercel_verification verification;
  tiercel_retention retention;
  tiercel_threading threading;
  tiercel_memory_kind memory_kind;
  tiercel_host_mode host_mode;
  uint64_t writer_grace_ns;                /* from an outside writer's exit to the end of its reservations */
  const struct tiercel_disk_options* disk; /* disk.h; NULL: no disk tier */
  const struct tiercel_remote_options*
      remote; /* remote.h; NULL: what TIERCEL_REMOTE names, or no remote tier */
} tiercel_node_options;

typedef struct tiercel_session_options {
  uint64_t size;
  const char* name;          /* for people; NULL: none */
  tiercel_bytes tenant_salt; /* secret; part of the identity of everything this session opens; empty: none */
  uint64_t bytes_max;        /* leased plus reserved at once; 0: client_share of the arena */
} tiercel_session_options;

/* ---- model: spec, form, identity ---- */
typedef uint32_t tiercel_dtype;
enum {
  TIERCEL_DTYPE_DEFAULT = 0, /* bf16; of a state: what the configuration says; of a component: opaque */
  TIERCEL_DTYPE_BF16 = 1,
  TIERCEL_DTYPE_FP16 = 2,
  TIERCEL_DTYPE_FP8 = 3,
  TIERCEL_DTYPE_F32 = 4,
  TIERCEL_DTYPE_U8 = 5
};
typedef uint32_t tiercel_group_kind;
enum {
  TIERCEL_GROUP_FULL = 1,
  TIERCEL_GROUP_WINDOW = 2,
  TIERCEL_GROUP_STATE = 3,
  TIERCEL_GROUP_FOLLOWER = 4 /* lives and dies with a full group */
};
typedef uint32_t tiercel_need;
enum { TIERCEL_NEED_REQUIRED = 0, TIERCEL_NEED_SPARSE = 1, TIERCEL_NEED_OPTIONAL = 2 };

typedef struct tiercel_config_options {
  uint64_t size;
  uint64_t tp;          /* 0: 1 */
  uint64_t page_tokens; /* 0: 64 */
  tiercel_dtype dtype, state_dtype;
} tiercel_config_options;
typedef struct tiercel_spec_options {
  uint64_t size;
  const char* model_type;
  uint64_t page_tokens;      /* required */
  uint32_t tp, pp, cp;       /* required, 1 at least */
  uint32_t pages_per_record; /* 0: 1 */
} tiercel_spec_options;

typedef struct tiercel_group_options {
  uint64_t size;
  const uint32_t* layers; /* global ids, ascending, unique */
  uint64_t layer_count;
  uint64_t window_tokens;    /* window */
  uint64_t tokens_per_entry; /* 0: 1 */
  uint32_t follows;          /* follower: number of the full group */
  uint32_t replicated;       /* not 0: every rank holds the same bytes */
  tiercel_group_kind kind;
  tiercel_need need;
} tiercel_group_options;

/* One tensor of one layer, one rank: of one token (of one entry where tokens_per_entry is above 1; of a
 * snapshot). */
typedef struct tiercel_component_options {
  uint64_t size;
  const char* name;
  const uint64_t* shape;
  uint64_t shape_count;
  uint64_t opaque_bytes; /* without dtype and shape: of one layer of one record, whatever the page size */
  tiercel_dtype dtype;
  uint32_t reserved;
} tiercel_component_options;

/* Which part of the model this process holds. No default hides a forgotten rank: each size must be given, 1
 * at least, and each rank below its size. This library serves a process that holds every shard: where a size
 * of tp, pp, cp or dcp is above 1, its rank must be TIERCEL_ALL_RANKS (else unsupported), and it is the one
 * that writes replicated classes. Data-parallel ranks share pages. */
typedef struct tiercel_topology {
  uint32_t tp_size, tp_rank;
  uint32_t pp_size, pp_rank;
  uint32_t cp_size, cp_rank;
  uint32_t dcp_size, dcp_rank;
  uint32_t dp_size, dp_rank;
  uint32_t first_layer,
      last_layer;      /* held here, both included; 0 and UINT32_MAX: all. Less is unsupported. */
  uint32_t replicated; /* not 0: other processes hold copies of replicated classes too. Unsupported. */
  uint32_t writer;     /* not 0: this process writes replicated classes; one must. 0 is unsupported. */
} tiercel_topology;

typedef struct tiercel_form_options {
  uint64_t size;
  tiercel_topology topology;
} tiercel_form_options;
typedef struct tiercel_form_info {
  uint64_t size;
  uint64_t page_tokens;
  uint64_t classes;             /* numbered from 0 */
  uint64_t page_bytes_required; /* payload of one page's required class-sets, all shards */
} tiercel_form_info;
typedef uint32_t tiercel_class_retention;
enum {
  TIERCEL_CLASS_REQUIRED = 1,
  TIERCEL_CLASS_WINDOW = 2,
  TIERCEL_CLASS_STATE = 3,
  TIERCEL_CLASS_OPTIONAL = 4
};
typedef struct tiercel_class_info {
  uint64_t size;
  const char* name;       /* "full", "window4096", "state" …; lives as long as the form's handle */
  uint64_t record_bytes;  /* payload of one record: one shard of one page, or of one snapshot */
  uint64_t window_tokens; /* 0: no window */
  uint64_t window_pages;  /* pages before a length that a resume there needs */
  uint64_t runs;          /* what tiercel_form_runs lists */
  uint32_t shards;
  uint32_t components; /* numbered from 0 */
  uint32_t replicated;
  tiercel_class_retention retention;
} tiercel_class_info;

/* One component of one layer inside a record's payload. */
typedef struct tiercel_run_info {
  uint64_t offset, length; /* bytes in the payload */
  uint64_t entries;   /* equal pieces it consists of: tokens or entries of a page; 1: opaque, or a snapshot */
  const char* name;   /* of the component; lives as long as the form's handle */
  uint32_t component; /* number in the class */
  uint32_t layer;
  uint64_t reserved[2];
} tiercel_run_info;

typedef struct tiercel_pair {
  const char *name, *value;
} tiercel_pair;

/* Everything besides the tokens that changes the bytes of a page. The tenant salt is the session's. */
typedef struct tiercel_identity {
  uint64_t size;
  const char* model;   /* for people, and part of the identity */
  const char* weights; /* required: revision, a digest or tag that changes when the weights do */
  uint64_t weights_epoch;
  const char* dtype; /* required: of the KV as computed */
  const char *quantisation, *rope, *attention, *adapter;
  uint64_t page_tokens; /* 0: the form's; another is an error */
  const char* scheme;   /* NULL: our own chain over tokens; else the engine's scheme of digests, by name */
  const char *scheme_algorithm, *scheme_seed, *scheme_encoding;
  uint64_t scheme_granule_tokens; /* 0: page_tokens */
  const tiercel_pair* other;      /* anything else that changes bytes */
  uint64_t other_count;
  uint64_t bytes_min; /* eviction never takes the namespace below */
  uint64_t bytes_max; /* 0: no bound */
  uint32_t scheme_allow_weak;
  uint32_t reserved;
} tiercel_identity;

/* ---- keys ---- */
typedef struct tiercel_key {
  uint8_t bytes[16];
} tiercel_key;
typedef struct tiercel_key_chain { /* state of a known prefix; the caller's own value */
  uint8_t digest[32];
  uint64_t pages;
} tiercel_key_chain;
typedef struct tiercel_probe { /* all zero: none */
  uint8_t bytes[16];
} tiercel_probe;
typedef struct tiercel_extras { /* of one page */
  const tiercel_bytes* items;
  uint64_t count;
} tiercel_extras;

/* ---- match ---- */
typedef struct tiercel_match_options {
  uint64_t size;
  uint64_t request;        /* 0: not part of a request */
  const tiercel_key* keys; /* of pages first_page, first_page + 1, … */
  uint64_t key_count;
  uint64_t first_page;
  const uint64_t* held; /* per class, pages the engine holds; NULL and 0: none */
  uint64_t held_count;
  uint64_t limit_tokens;      /* reuse at most so many; no default: TIERCEL_NO_LIMIT, or prompt − 1 */
  uint64_t prompt_tokens;     /* of the whole prompt, so that its tail is counted; 0: not known */
  const tiercel_probe* probe; /* NULL: `other_identity` is never reported */
  uint64_t deadline_ns;       /* for what is brought up; 0: the node's operation_deadline */
  tiercel_cq* cq;             /* NULL: no completion is wanted */
  uint64_t user_data;
  uint32_t may_promote; /* not 0: what only lower tiers have is brought up first, the ticket is pending */
  uint32_t no_touch;    /* not 0: a question only, no use of the pages found */
} tiercel_match_options;

typedef uint32_t tiercel_tier;
enum { TIERCEL_TIER_HOST = 1, TIERCEL_TIER_DISK = 2, TIERCEL_TIER_REMOTE = 4, TIERCEL_TIER_ALL = 0x3fffffff };

typedef uint32_t tiercel_state;
enum {
  TIERCEL_STATE_PENDING = 0,
  TIERCEL_STATE_READY = 1, /* ticket: answered; operation: its last completion was given */
  TIERCEL_STATE_ENDED = 2  /* ticket: expired, cancelled, or its session was closed; match again */
};

typedef struct tiercel_ticket_counts {
  uint64_t size;
  uint64_t first_page, length; /* length: the longest restorable one, pages */
  uint64_t known_pages;        /* longest prefix whose required class-sets are all resident */
  uint64_t hit_tokens, missed_tokens;
  uint64_t host_pages, disk_pages, remote_pages; /* of the hit, by the tier that served them to this match */
} tiercel_ticket_counts;

typedef uint32_t tiercel_reason;
enum {
  TIERCEL_REASON_LIMIT = 0,
  TIERCEL_REASON_TAIL = 1,
  TIERCEL_REASON_AFTER_GAP = 2,
  TIERCEL_REASON_STATE_MISSING = 3,
  TIERCEL_REASON_WINDOW_MISSING = 4,
  TIERCEL_REASON_IN_FLIGHT = 5,
  TIERCEL_REASON_DAMAGED = 6,
  TIERCEL_REASON_TIER_DOWN = 7,
  TIERCEL_REASON_TOO_LATE = 8,
  TIERCEL_REASON_REMOVED = 9,
  TIERCEL_REASON_EVICTED = 10,
  TIERCEL_REASON_NO_ROOM = 11, /* not_admitted(…), and so on */
  TIERCEL_REASON_TOO_LARGE = 12,
  TIERCEL_REASON_SECOND_TOUCH = 13,
  TIERCEL_REASON_WRITE_BUDGET = 14,
  TIERCEL_REASON_QUOTA = 15,
  TIERCEL_REASON_BELOW_THRESHOLD = 16,
  TIERCEL_REASON_RATE_LIMITED = 17,
  TIERCEL_REASON_OTHER_FORM = 18,
  TIERCEL_REASON_OTHER_IDENTITY = 19,
  TIERCEL_REASON_NEVER_STORED = 20,
  TIERCEL_REASON_UNKNOWN_PAST = 21
};
#define TIERCEL_REASONS_MAX 64 /* length of arrays by reason */

/* A run of missed pages, or the prompt's tail, with one reason. */
typedef struct tiercel_miss {
  uint64_t first_page, pages; /* pages 0: the tail */
  uint64_t tokens;
  uint64_t when_ns; /* evicted, removed: on the node's clock (stats: now_ns); else 0 */
  uint64_t by;      /* evicted: id of the namespace whose store needed the room; 0: nobody's */
  tiercel_reason reason;
  uint32_t reserved;
  char field[64]; /* other_form, other_identity: what differs; cut to fit */
} tiercel_miss;

typedef struct tiercel_advice_options {
  uint64_t size;
  uint64_t pages;       /* whole pages of the request: advice never goes beyond */
  uint64_t multiple_of; /* 0: 1 */
  uint64_t at_most;     /* number of lengths; 0: as many as are worth it */
  uint64_t from;        /* lengths above it only */
} tiercel_advice_options;

/* ---- memory of the engine ---- */
typedef uint32_t tiercel_device;
enum { TIERCEL_DEVICE_HOST = 0 /* addresses of this process; others are unsupported in this library */ };
typedef uint32_t tiercel_memory_source;
enum { TIERCEL_SOURCE_POINTER = 0, TIERCEL_SOURCE_FD = 1 /* unsupported in this library */ };

/* Where component × layer of slot s lies: base + s × slot_stride. Layer TIERCEL_WHOLE: of every layer that
 * has the component, the i-th at base + i × layer_stride. Component TIERCEL_WHOLE (with layer TIERCEL_WHOLE):
 * whole records in record order. entry_stride: distance of a page's entries (tokens); 0: dense.
 * head_count, head_stride: for memory that lays a page out head by head, its heads and their distance in
 * bytes; 0: not so. Anything else is unsupported in this library. */
typedef struct tiercel_memory_run {
  void* base;
  uint64_t fd_offset; /* TIERCEL_SOURCE_FD: where `base` is in the file */
  uint64_t slot_stride, layer_stride, entry_stride;
  uint64_t head_count, head_stride;
  uint32_t component, layer;
  uint64_t reserved[2];
} tiercel_memory_run;

typedef struct tiercel_memory_options {
  uint64_t size;
  const tiercel_memory_run* runs; /* every run of the class once; may overlay other classes' bytes */
  uint64_t run_count;
  uint64_t slots;
  uint32_t class_id, shard;
  tiercel_device device;
  tiercel_memory_source source;
  int32_t fd;
  uint32_t reserved;
} tiercel_memory_options;

/* Bytes anywhere in memory, for callers without slots. A record is a list of objects, each one component (all
 * layers that have it, ascending; or TIERCEL_WHOLE: the record) as a list of segments. */
typedef struct tiercel_segment {
  void* data;
  uint64_t size;
} tiercel_segment;
typedef struct tiercel_object {
  const tiercel_segment* segments;
  uint64_t segment_count;
  uint32_t component;
  uint32_t reserved;
} tiercel_object;
typedef struct tiercel_record_memory {
  const tiercel_object* objects;
  uint64_t object_count;
} tiercel_record_memory;

/* ---- load ---- */
typedef uint32_t tiercel_load_mode;
enum {
  TIERCEL_LOAD_MODE_DEFAULT = 0 /* whole */,
  TIERCEL_LOAD_MODE_WHOLE = 1,
  TIERCEL_LOAD_MODE_LAYERED = 2
};

/* Page classes: one entry per page from the ticket's first_page on, up to the length asked. State classes:
 * exactly one, for the snapshot at whatever length is delivered. Either `slots` of registered memory or
 * `records` anywhere. */
typedef struct tiercel_load_target {
  const uint64_t* slots;                /* TIERCEL_SKIP: not wanted */
  const tiercel_record_memory* records; /* no objects: not wanted */
  uint64_t count;                       /* of slots or records */
  uint32_t class_id, shard;
  uint64_t reserved;
} tiercel_load_target;

typedef struct tiercel_load_options {
  uint64_t size;
  uint64_t length; /* one of the ticket's lengths */
  const tiercel_load_target* targets;
  uint64_t target_count;
  const uint32_t* layers; /* layered: the order of global layers; NULL and 0: ascending */
  uint64_t layer_count;
  uint64_t after_event; /* nothing is written before it fires; 0: at once */
  uint64_t deadline_ns; /* 0: the node's operation_deadline */
  tiercel_cq* cq;
  uint64_t user_data;
  tiercel_load_mode mode;
  uint32_t reserved;
} tiercel_load_options;
typedef uint32_t tiercel_load_outcome; /* of one target entry */
enum {
  TIERCEL_ENTRY_NOT_NEEDED = 0,
  TIERCEL_ENTRY_SKIPPED = 1,
  TIERCEL_ENTRY_DELIVERED = 2,
  TIERCEL_ENTRY_MISSING = 3,
  TIERCEL_ENTRY_DAMAGED = 4,
  TIERCEL_ENTRY_NOT_DELIVERED = 5
};

/* ---- store ---- */
typedef struct tiercel_store_item {
  tiercel_key key;
  tiercel_key parent; /* of the page before; not read at length 1 */
  uint64_t length;    /* pages of the prefix that ends with this page, 1 at least */
  uint64_t slot; /* source: of registered memory, unless `record` has objects; not read by tiercel_reserve */
  tiercel_record_memory record;
  uint64_t bytes; /* what the caller believes the record to have; another size is an error; 0: not said */
  tiercel_bytes external; /* the engine's own digest of the page, 64 bytes at most, for events; empty: none */
  uint32_t class_id, shard;
  uint32_t resume_point; /* not 0: windows and no state: the caller means to resume here, keep its windows */
  uint32_t reserved;
} tiercel_store_item;

typedef struct tiercel_store_options {
  uint64_t size;
  uint64_t request; /* 0: not part of one */
  const tiercel_store_item* items;
  uint64_t item_count;
  uint64_t after_event; /* sources are not read before it fires; 0: at once */
  uint64_t deadline_ns; /* 0: the node's operation_deadline */
  tiercel_cq* cq;
  uint64_t user_data;
  uint32_t writer_pid; /* tiercel_reserve: the process that will write, if another one; 0: this one */
  uint32_t reserved;
  uint64_t tell_lower; /* not 0: the completions `accepted` and `durable` are wanted, too */
} tiercel_store_options;

typedef uint32_t tiercel_offer_event;
enum { TIERCEL_OFFER_COMPUTED = 1, TIERCEL_OFFER_HIT = 2, TIERCEL_OFFER_LEAVING = 3 };
typedef struct tiercel_offer_options {
  uint64_t size;
  uint64_t request;
  const tiercel_key* keys; /* pages first_page, … */
  uint64_t key_count;
  uint64_t first_page;
  const uint64_t* points; /* lengths at which resume points are meant; NULL and 0: the end of the keys */
  uint64_t point_count;
  tiercel_offer_event event;
  uint32_t reserved;
} tiercel_offer_options;

/* ---- requests, pages ---- */
typedef struct tiercel_request_options {
  uint64_t size;
  uint64_t id;        /* not 0; the caller's own, unique in its session while under way */
  uint64_t ttl_ns;    /* ended as by tiercel_request_abort after it; 0: never */
  tiercel_bytes salt; /* unsupported in this library: give it as an extra of the pages' keys */
  uint32_t priority;  /* 0: ordinary; others are unsupported in this library */
  uint32_t reserved;
} tiercel_request_options;

typedef uint32_t tiercel_prefetch_policy;
enum {
  TIERCEL_PREFETCH_BEST_EFFORT = 1, /* until it is cancelled, or its request asks (match) */
  TIERCEL_PREFETCH_WAIT_COMPLETE = 2,
  TIERCEL_PREFETCH_TIMEOUT = 3 /* until a time has passed that grows with the tokens asked for */
};
typedef struct tiercel_prefetch_options {
  uint64_t size;
  uint64_t request;
  const tiercel_key* keys;
  uint64_t key_count;
  uint64_t deadline_ns; /* at most so long, whatever the policy; 0: the node's operation_deadline */
  tiercel_cq* cq;
  uint64_t user_data;
  tiercel_prefetch_policy policy;
  uint32_t reserved;
  uint64_t first_page;  /* of the keys */
  const uint64_t* held; /* as in tiercel_match_options */
  uint64_t held_count;
} tiercel_prefetch_options;

typedef uint32_t tiercel_clear_scope;
enum { TIERCEL_CLEAR_NAMESPACE = 1, TIERCEL_CLEAR_FORM = 2 };

/* ---- completions ---- */
typedef uint32_t tiercel_completion_kind;
enum {
  TIERCEL_COMPLETION_TICKET = 1,      /* a match is answered */
  TIERCEL_COMPLETION_LOADED = 2,      /* a load has its result */
  TIERCEL_COMPLETION_LAYER = 3,       /* layered: `layer` of every page is verified and in place */
  TIERCEL_COMPLETION_SOURCE_FREE = 4, /* a store's sources were read: the engine may reuse them */
  TIERCEL_COMPLETION_VISIBLE = 5,     /* all pages of a store that will ever be visible are */
  TIERCEL_COMPLETION_ACCEPTED = 6,    /* by `tier`, of a store with tell_lower; after `visible` */
  TIERCEL_COMPLETION_DURABLE = 7,     /* in `tier`; after `accepted` */
  TIERCEL_COMPLETION_QUIESCENT = 8, /* what a deadline left running has ended: memory is the caller's again */
  TIERCEL_COMPLETION_SUSPENDED = 9  /* disk.h has more */
};
enum {
  TIERCEL_COMPLETION_LAST =
      1, /* flag: nothing more comes of this operation. Each operation has exactly one */
  TIERCEL_COMPLETION_QUIET = 2 /* flag: nothing touches the operation's memory any more */
};
typedef struct tiercel_completion {
  uint64_t user_data;        /* as given to the call */
  uint64_t operation;        /* id of the operation or ticket */
  tiercel_operation* handle; /* as the call gave it out; NULL: not asked for, a ticket, or released since */
  uint64_t length;           /* loaded, ticket, prefetched: pages delivered or restorable; accepted, durable:
                                class-sets of the store that `tier` has */
  uint64_t items_ok;         /* store: items committed or already present so far */
  uint64_t items;            /* store: items of the batch */
  tiercel_completion_kind kind;
  uint32_t flags;
  tiercel_status status; /* of a load, ticket, prefetch, accepted, durable; else ok: items have outcomes */
  uint32_t layer;
  tiercel_tier tier;
  uint32_t reserved;
} tiercel_completion;

typedef struct tiercel_cq_options {
  uint64_t size;
  uint64_t capacity; /* completions that wait; beyond it new operations are refused; 0: 65,536 */
} tiercel_cq_options;
typedef struct tiercel_operation_result {
  uint64_t size;
  uint64_t length;   /* load: pages really delivered; store with tell_lower: class-sets that the disk has */
  uint64_t items;    /* store: of the batch */
  uint64_t items_ok; /* store: committed or already present */
  tiercel_status
      status;         /* load: why it ended; store with tell_lower: unavailable, the disk was closed first */
  uint32_t quiescent; /* not 0: nothing touches the operation's memory any more */
  char message[256];  /* of a status that is not ok; cut to fit */
} tiercel_operation_result;

/* ---- what the cache tells of itself ---- */
typedef uint32_t tiercel_cache_event_kind;
enum {
  TIERCEL_EVENT_STORED = 1,
  TIERCEL_EVENT_ATTACHED = 2,
  TIERCEL_EVENT_DROPPED = 3,
  TIERCEL_EVENT_REMOVED = 4, /* the last copy in its medium */
  TIERCEL_EVENT_CLEARED = 5
};
typedef struct tiercel_cache_event {
  uint64_t sequence; /* grows by one; a gap is what `lost` counts */
  uint64_t length;   /* pages of the prefix that ends with the page */
  uint64_t page_tokens;
  uint64_t namespace_id; /* tiercel_namespace_id; cleared: 0 when a whole form was */
  uint64_t classes;      /* bit per class: stored, attached: there now; dropped: gone */
  tiercel_key key, parent;
  tiercel_cache_event_kind kind;
  uint32_t has_parent;
  tiercel_reason cause; /* removed, dropped: why */
  tiercel_tier medium;
  uint32_t external_size;
  uint8_t external[64]; /* the engine's own digest of the page */
  uint32_t reserved[5];
} tiercel_cache_event;

typedef struct tiercel_stats {
  uint64_t size;
  uint64_t now_ns; /* the node's clock */
  /* bytes now */
  uint64_t host_bytes_granted, arena_bytes, arena_bytes_owned, payload_bytes, resident_bytes,
      resident_bytes_peak;
  uint64_t fragmentation_bytes, index_bytes, history_bytes, advice_bytes, in_flight_bytes, leased_bytes;
  uint64_t reserved_bytes, quarantined_bytes, pinned_pages;
  /* counts since open, unless they say "now" */
  uint64_t matches, hit_tokens, missed_tokens, tail_tokens;
  uint64_t pages_visible_now, pages_stored, pages_evicted, pages_removed;
  uint64_t snapshots_stored, snapshots_evicted, snapshots_resident_now, windows_dropped;
  uint64_t stores_refused, stale_commits, expired_reservations, quarantines, damaged_records;
  uint64_t verified_bytes, unverified_bytes;
  uint64_t loads, loads_shortened, loads_failed, loads_cancelled, loads_timed_out;
  uint64_t records_moved, bytes_moved, events_lost;
  uint64_t missed_pages[TIERCEL_REASONS_MAX]; /* by tiercel_reason */
  tiercel_memory_kind memory_kind;            /* of the arena, as got */
  tiercel_page_kind page_kind;
  uint32_t off; /* not 0: switched off by TIERCEL_OFF */
  uint32_t reserved;
  uint64_t records_copied_in;        /* since open: payloads that a store moved into the cache */
  uint64_t records_written_in_place; /* since open: committed where their writer had put them, unmoved */
} tiercel_stats;

/* What is known of one page. */
typedef struct tiercel_page_state {
  uint64_t size;
  uint64_t when_ns;      /* of an eviction or removal, on the node's clock */
  uint64_t by;           /* evicted: id of the namespace whose store needed the room */
  uint64_t classes;      /* bit per class: resident */
  uint32_t resident;     /* not 0: its required class-sets are (without such a class: any is) */
  tiercel_reason reason; /* when not resident */
  tiercel_tier tiers;    /* that hold it */
  uint32_t reserved;
} tiercel_page_state;

#ifdef __cplusplus
}
#endif
/* NOLINTEND */
#endif
