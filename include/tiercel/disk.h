/* The disk tier of a node: its options, its own calls, what it counts. Included by tiercel.h; the rules of
 * types.h and tiercel.h hold.
 *
 * A node that is opened with `disk` (tiercel_node_options) spills to one file or drive and finds it again
 * when it is opened the next time, after a clean close, a kill or a power loss: every page that was durable,
 * possibly some that were accepted, nothing else. What comes from the disk is verified before it is used.
 *   - tiercel_match with may_promote brings up what only the disk has; the ticket is pending meanwhile.
 *   - tiercel_prefetch does so ahead of a match.
 *   - A store with tell_lower has two completions more: accepted (the disk has its records: a match would
 * find them there) and durable (behind a flush: they survive anything). They speak of what that call stored:
 * an item that was `already_present` is another store's; tiercel_flush waits for all.
 *   - tiercel_remove, invalidate, clear and set_weights_epoch hold in every tier at once, and return when
 * they are durable. They wait for the drive then, one flush each, at most record_deadline.
 *   - Closing writes resident pages down that the disk has not yet, the most recently used first, for
 * close_write_down at most. The library installs no signal handler: a program that is ended by SIGTERM calls
 * tiercel_node_close on its way out, from an ordinary thread (docs/guide/disk.md shows how), or loses what
 * was not written down yet. Nothing else is lost.
 *   - A drive that stalls or fails turns into misses (tier_down) and comes back by itself. Only where the
 * operating system never ends an operation (a network drive that hangs) tiercel_node_open and
 * tiercel_node_close wait for it without an end: it may still write into memory.
 *
 * Threads: as in tiercel.h.
 */
#ifndef TIERCEL_DISK_H
#define TIERCEL_DISK_H

#include <tiercel/tiercel.h>

/* NOLINTBEGIN: names and constructs are those of C. */
#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t tiercel_disk_admission; /* what is worth a write */
enum {
  TIERCEL_ADMIT_DEFAULT = 0,     /* auto */
  TIERCEL_ADMIT_AUTO = 1,        /* all while unused room and the day's writes last, second touch after */
  TIERCEL_ADMIT_ALL = 2,         /* all that fits */
  TIERCEL_ADMIT_SECOND_TOUCH = 3 /* what is offered for the second time */
};

/* More kinds of tiercel_completion_kind. */
enum { TIERCEL_COMPLETION_PREFETCHED = 10 /* a prefetch has its result */ };

/* Shares are of the arena, above 0 and at most 1; 0: the default. */
typedef struct tiercel_disk_options {
  uint64_t size;
  const char* path; /* required: a regular file, made where there is none, or a block device */
  uint64_t bytes;   /* of the file, claimed when it is opened and never exceeded; 0: as large as it is */
  uint64_t region_bytes, index_entries; /* of a new log; 0: by size. An old one keeps what it was made with */
  uint64_t write_bytes_per_day;         /* 0: no limit */
  uint64_t queued_bytes_max;            /* accepted and not yet written; more is refused */
  uint64_t prefetch_threshold_tokens;   /* a prefetch of less is not begun; 1: of anything */
  uint64_t prefetch_base_ns, prefetch_per_1024_tokens_ns; /* time of the policy `timeout` */
  uint64_t record_deadline_ns;                            /* that removals and clears wait for the drive */
  uint64_t stall_after_ns; /* an operation of the drive that takes longer: the tier is down */
  uint64_t close_write_down_ns;
  /* While the room of a new file is claimed by writing zeros, where its file system has no quicker way. The
   * answer is not read. */
  tiercel_progress progress;
  void* progress_context;
  double prefetch_share, write_share; /* most of it that prefetches, and writes, take at once */
  double clean_share;                 /* write_back: so much is kept free of what the disk has not */
  uint32_t reinsert_after;            /* uses after which eviction writes a page again; 0: never */
  uint32_t selective_threshold;       /* through_selective: different requests */
  tiercel_disk_admission admission;
  tiercel_write_policy write_policy; /* when resident pages are offered to the disk; 0: through */
} tiercel_disk_options;

/* What a prefetch came to. */
typedef struct tiercel_prefetch_result {
  uint64_t size;
  uint64_t wanted_pages;  /* of which something had to be brought */
  uint64_t brought_pages; /* of which it came; they stay, however the prefetch ended */
  uint64_t length;        /* longest restorable prefix in the host tier at the end, pages */
  tiercel_status status;  /* ok, deadline_exceeded, cancelled */
  uint32_t reserved;
  char message[256]; /* of a status that is not ok; cut to fit */
} tiercel_prefetch_result;

/* What writing down came to. */
typedef struct tiercel_write_down {
  uint64_t size;
  uint64_t class_sets, bytes; /* written */
  uint64_t left_class_sets;   /* not written: no time left, or the disk did not want them */
  uint64_t took_ns;
  tiercel_status status; /* of closing the disk's log */
  uint32_t reserved;
  char message[256]; /* of a status that is not ok; cut to fit */
} tiercel_write_down;

/* Bytes are bytes on the drive; counts are since the node was opened, unless they say "now". */
typedef struct tiercel_disk_stats {
  uint64_t size;
  /* now */
  uint64_t size_bytes, live_bytes;        /* the quota; what can be found in it */
  uint64_t class_sets_now, index_entries; /* that can be found; that there is room for */
  uint64_t region_bytes, regions, regions_free;
  uint64_t host_bytes;                            /* of the node's grant, for the disk's index */
  uint64_t write_budget_bytes, write_budget_left; /* of a day; 0 and 0: no limit */
  uint64_t oldest_age_ns; /* of the oldest region with pages, as far as this opening knows */
  uint64_t reading_bytes, writing_bytes, prefetch_bytes;
  uint64_t removals_now; /* remembered one by one */
  /* writing */
  uint64_t appended, appended_bytes; /* class-sets accepted */
  uint64_t written_bytes, record_bytes, directory_bytes, padding_bytes, footer_bytes, image_bytes;
  uint64_t reinserted, reinserted_bytes, lost;
  uint64_t evicted, regions_evicted;
  uint64_t segments, flushes, checkpoints;
  uint64_t refused_second_touch, refused_write_budget, refused_quota, refused_too_large, refused_no_room;
  uint64_t refused_rate_limited, refused_tier_down;
  uint64_t unrecorded; /* removals and clears that the drive did not take */
  /* reading */
  uint64_t reads, read_bytes, read_failures;
  uint64_t matches_waited, hit_tokens; /* matches that waited for the disk; tokens that came from it */
  uint64_t promoted, promoted_bytes, promotions_failed, promotions_joined;
  uint64_t demoted, demoted_bytes, demotions_refused;
  uint64_t prefetches, prefetched_pages;
  /* faults */
  uint64_t trips, io_errors, stalls; /* times that it went down */
  /* of the opening; footers_damaged: met by evictions since */
  uint64_t recovered_class_sets, recovered_from_image, recovered_from_footers, recovered_from_tail;
  uint64_t recovery_read_bytes, tail_segments_refused, footers_damaged, images_damaged;
  uint32_t down; /* not 0: the drive stalls or fails now */
  uint32_t open; /* not 0: there is a disk; 0: written down already, or switched off */
} tiercel_disk_stats;

/* Ends the disk tier: what is resident and the disk has not goes there, the most recently used first, until
 * `deadline_ns` has passed; then the log is closed, and the node goes on without a disk (its calls answer as
 * if there were none). For a program that closes and wants to know what was saved: tiercel_node_close does
 * the same by itself. report may be NULL; else report->size must be set. Waits; other calls on the node wait
 * for it too. Errors: unsupported: the node has no disk (any more). */
TIERCEL_API tiercel_status tiercel_node_write_down(tiercel_node* node, uint64_t deadline_ns,
                                                   tiercel_write_down* report, tiercel_error* error);
/* How a prefetch ended. result->size must be set. Errors: unavailable: not yet. */
TIERCEL_API tiercel_status tiercel_prefetch_result_read(const tiercel_operation* operation,
                                                        tiercel_prefetch_result* result,
                                                        tiercel_error* error);
/* Wanted pages that did not come, and why. Errors: unavailable: not yet. */
TIERCEL_API tiercel_status tiercel_prefetch_reasons(const tiercel_operation* operation, tiercel_miss* misses,
                                                    uint64_t capacity, uint64_t* count, tiercel_error* error);
/* stats->size must be set. Cost: O(namespaces x classes) of the log. Errors: unsupported: the node was opened
 * without a disk. */
TIERCEL_API tiercel_status tiercel_disk_stats_read(tiercel_node* node, tiercel_disk_stats* stats,
                                                   tiercel_error* error);
/* For people: tiers, bytes, what was hit and missed, write budget, age of the oldest page. Lines of text, as
 * tiercel_spec_to_json gives text; what stands in them may change with any version. Cost: as above. */
TIERCEL_API tiercel_status tiercel_status_text(tiercel_node* node, char* text, uint64_t capacity,
                                               uint64_t* count, tiercel_error* error);

#ifdef __cplusplus
}
#endif
/* NOLINTEND */
#endif
