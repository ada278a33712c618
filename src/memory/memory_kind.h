// What the memory of a host pool group is made of: one kind for the whole group, resolved once from what a
// person wrote. Storage back ends and allocators have names that look alike; here a back end's name never
// chooses memory.
//
//   kind        also written as            memory
//   anonymous   default, mmap              private; transparent huge pages where they can be had
//   hugepage    hugetlb                    private; every byte on huge pages, or an error
//   shared      shm, memfd                 a memfd that other processes can map
//   pinned      cuda                       private, registered with the device
//   external                               the caller's own ranges
//
// Threads: pure functions; files are read by the function that is handed in.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tiercel {

enum class MemoryKind : std::uint8_t { kAnonymous, kHugepage, kShared, kPinned, kExternal };
std::string_view memory_kind_name(MemoryKind kind);  // "shared"

// The kind of that name, or of another way to write it. Errors: invalid_argument naming `option`.
Result<MemoryKind> memory_kind_from_name(std::string_view option, std::string_view name);

// As they were written; absent is not the same as empty, which is an error.
struct MemoryKindOptions {
  std::optional<std::string> memory;        // a kind
  std::optional<std::string> allocator;     // a kind
  std::optional<std::string> backend;       // a storage back end, any name; chooses nothing
  std::optional<std::string> extra_config;  // a JSON object, or "@FILE" with one in JSON or TOML
};

// The text of the file at a path. Errors: why not.
using TextReader = std::function<Result<std::string>(const std::string& path)>;
Result<std::string> no_files(const std::string& path);  // refuses every path

// The one kind that the options name. `extra_config` may say `memory`, `allocator` and `backend` too (whoever
// else reads it has other keys in it, which are passed over); what is said twice must agree. Errors:
// invalid_argument naming the option: unknown, empty or no text; two that contradict each other; none that
// names a kind; extra configuration that is no JSON, no TOML, not an object, or a file that is neither .json
// nor .toml; what `read` says.
Result<MemoryKind> resolve_memory_kind(const MemoryKindOptions& options, const TextReader& read = no_files);

// For a back end that is attached when the pools are already there: ok when its options name no kind, or
// `kind`. Errors: failed_precondition when they name another one, which cannot be had any more; else as
// resolve_memory_kind().
Status check_attached(MemoryKind kind, const MemoryKindOptions& options, const TextReader& read = no_files);

}  // namespace tiercel
