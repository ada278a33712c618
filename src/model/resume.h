// The resume rule (contract §2): which prefix lengths can every class of a model serve? One pure function; no
// caller derives it again.
//
// Threads: pure functions on plain values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/storage_form.h"

namespace tiercel {

// Bit c set: class c of that page is whole and visible. A state's snapshot of length L is the record of page
// L - 1.
using Presence = std::uint32_t;

struct ResumeQuery {
  std::span<const Presence> pages;  // presence of pages first_page, first_page + 1, …
  std::uint64_t first_page = 0;     // the query may start in the middle of a chain
  // Per class, what the engine itself holds: pages below the number; of a state, the snapshot of exactly that
  // length and no other. Empty = 0 for all.
  std::span<const std::uint64_t> held;
  std::uint64_t limit_tokens = UINT64_MAX;
};

struct ResumeAnswer {
  std::vector<std::uint64_t> lengths;  // all restorable lengths in pages, ascending; always starts with 0
  std::uint64_t longest = 0;
  std::uint64_t limit_pages = 0;  // floor(limit_tokens / page_tokens), or the end of the query if lower
  std::uint64_t gap = 0;          // first page that lacks a required class (the end of the query if none)
  std::vector<std::uint64_t> lacking;  // per class: pages in [longest, limit_pages) neither present nor held
};

// All lengths at which every class can resume. Pages below first_page count only where `held` says so; so a
// length from 1 to first_page is reported exactly when the engine holds all that it needs.
// Requires: pages.size() + first_page < 2^63; held empty or one entry per class.
// Cost: O((pages + lengths reported) × classes); of first_page and held only wholly held lengths cost
// anything.
ResumeAnswer restorable(const StorageForm& form, const ResumeQuery& query);

// Whether a resume at `length` needs class `cls` of page `page`; the inverse view of the same rule, for
// loads. An optional class is never needed: a load takes what is there.
bool needs(const ClassForm& cls, std::uint64_t length, std::uint64_t page);

}  // namespace tiercel
