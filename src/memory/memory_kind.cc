#include "memory/memory_kind.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "memory/memory_kind_config.h"
#include "model/json_text.h"

namespace tiercel {
namespace {

struct Name {
  std::string_view name;
  MemoryKind kind;
};
// The first of each kind is its own name.
constexpr std::array kNames = {
    Name{"anonymous", MemoryKind::kAnonymous}, Name{"default", MemoryKind::kAnonymous},
    Name{"mmap", MemoryKind::kAnonymous},      Name{"hugepage", MemoryKind::kHugepage},
    Name{"hugetlb", MemoryKind::kHugepage},    Name{"shared", MemoryKind::kShared},
    Name{"shm", MemoryKind::kShared},          Name{"memfd", MemoryKind::kShared},
    Name{"pinned", MemoryKind::kPinned},       Name{"cuda", MemoryKind::kPinned},
    Name{"external", MemoryKind::kExternal},
};

constexpr std::string_view kChoices = "anonymous, hugepage, shared, pinned or external";

tl::unexpected<Status> bad(std::string message) { return error(Code::kInvalidArgument, std::move(message)); }

// An option that names a kind, and where it was said.
struct Said {
  std::string where;
  MemoryKind kind;
};

// What all options together say, in the order in which they are looked at.
class Hearing {
 public:
  Status hear(std::string where, const std::optional<std::string>& name) {
    if (!name) return {};
    const Result<MemoryKind> kind = memory_kind_from_name(where, *name);
    if (!kind) return kind.error();
    if (said_ && said_->kind != *kind)
      return {
          Code::kInvalidArgument,
          fmt::format("{} says {} memory and {} says {}: wanted one kind for all pools; take one of them out",
                      said_->where, memory_kind_name(said_->kind), where, memory_kind_name(*kind))};
    if (!said_) said_ = Said{std::move(where), *kind};
    return {};
  }

  // A back end is named once or twice alike, and chooses nothing.
  Status hear_backend(std::string_view where, const std::optional<std::string>& name) {
    if (!name) return {};
    if (name->empty())
      return {Code::kInvalidArgument, fmt::format("{}: wanted the name of a back end, got ''", where)};
    if (backend_ && *backend_ != *name)
      return {Code::kInvalidArgument, fmt::format("{}: wanted the same as backend '{}', got '{}'", where,
                                                  printable(*backend_), printable(*name))};
    backend_ = *name;
    return {};
  }

  const std::optional<Said>& said() const { return said_; }
  const std::optional<std::string>& backend() const { return backend_; }

 private:
  std::optional<Said> said_;
  std::optional<std::string> backend_;
};

Result<ExtraConfig> read_extra_config(const std::string& option, const TextReader& read) {
  constexpr std::string_view kOption = "extra_config";
  if (option.empty()) return bad("extra_config: wanted a JSON object or '@FILE', got ''");
  if (option.front() != '@') return parse_extra_config(option, ConfigSyntax::kJson, kOption);
  const std::string path = option.substr(1);
  ConfigSyntax syntax = ConfigSyntax::kJson;
  if (path.ends_with(".toml")) {
    syntax = ConfigSyntax::kToml;
  } else if (!path.ends_with(".json")) {
    return bad(
        fmt::format("extra_config: wanted '@FILE' that ends in .json or .toml, got '{}'", printable(option)));
  }
  const std::string where = fmt::format("extra_config: {}", printable(path, 200));
  const Result<std::string> text = read(path);
  if (!text) return error(text.error().code, fmt::format("{}: {}", where, text.error().message));
  return parse_extra_config(*text, syntax, where);
}

// Errors: as resolve_memory_kind(), but that nothing names a kind is none.
Result<Hearing> hear(const MemoryKindOptions& options, const TextReader& read) {
  Hearing hearing;
  TIERCEL_RETURN_IF_ERROR(hearing.hear("memory", options.memory));
  TIERCEL_RETURN_IF_ERROR(hearing.hear("allocator", options.allocator));
  TIERCEL_RETURN_IF_ERROR(hearing.hear_backend("backend", options.backend));
  if (options.extra_config) {
    TIERCEL_ASSIGN_OR_RETURN(const ExtraConfig extra, read_extra_config(*options.extra_config, read));
    TIERCEL_RETURN_IF_ERROR(hearing.hear("extra_config: memory", extra.memory));
    TIERCEL_RETURN_IF_ERROR(hearing.hear("extra_config: allocator", extra.allocator));
    TIERCEL_RETURN_IF_ERROR(hearing.hear_backend("extra_config: backend", extra.backend));
  }
  return hearing;
}

}  // namespace

std::string_view memory_kind_name(MemoryKind kind) {
  for (const Name& each : kNames)
    if (each.kind == kind) return each.name;
  return "unknown";
}

Result<MemoryKind> memory_kind_from_name(std::string_view option, std::string_view name) {
  for (const Name& each : kNames)
    if (each.name == name) return each.kind;
  return bad(
      fmt::format("{}: wanted {}, got '{}'{}", option, kChoices, printable(name),
                  name == "mooncake" || name == "dynamic" ? "; that is a storage back end, not memory" : ""));
}

Result<std::string> no_files(const std::string& path) {
  return error(Code::kUnsupported,
               fmt::format("no files are read here; give the text of {} itself", printable(path)));
}

Result<MemoryKind> resolve_memory_kind(const MemoryKindOptions& options, const TextReader& read) {
  TIERCEL_ASSIGN_OR_RETURN(const Hearing hearing, hear(options, read));
  if (hearing.said()) return hearing.said()->kind;
  const std::string backend = hearing.backend() ? fmt::format(" (the back end '{}' does not choose it)",
                                                              printable(*hearing.backend()))
                                                : "";
  return bad(
      fmt::format("memory: wanted {}, got nothing{}; say it as memory or as allocator", kChoices, backend));
}

Status check_attached(MemoryKind kind, const MemoryKindOptions& options, const TextReader& read) {
  const Result<Hearing> hearing = hear(options, read);
  if (!hearing) return hearing.error();
  if (!hearing->said() || hearing->said()->kind == kind) return {};
  return {Code::kFailedPrecondition,
          fmt::format(
              "{}: wanted {}, which the host pools are made of, got {}; a back end that is attached later "
              "cannot change it",
              hearing->said()->where, memory_kind_name(kind), memory_kind_name(hearing->said()->kind))};
}

}  // namespace tiercel
