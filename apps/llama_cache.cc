#include "llama_cache.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace tiercel::apps {
namespace {

int on_store_progress(void* bar, std::uint64_t done, std::uint64_t total) {
  static_cast<Bar*>(bar)->update(done, total);
  return 0;
}

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Of a page, in this kind of cache.
std::uint64_t page_bytes(const llamacpp::ContextCache& cache, const LlamaArguments& arguments) {
  if (cache.sequence_kind() == llamacpp::SequenceKind::kWhole) return kMiB;  // a piece of a state
  return arguments.page_tokens * cache.token_bytes();
}

// A record on the drive: whole blocks, and one before it.
std::uint64_t bytes_on_disk(std::uint64_t payload) {
  constexpr std::uint64_t kBlock = 4096;
  return payload == 0 ? 0 : (payload + 2 * kBlock - 1) / kBlock * kBlock;
}

}  // namespace

LlamaResult<std::unique_ptr<llamacpp::ContextCache>> attach_cache(const LlamaModel& model,
                                                                  const LlamaContext& context,
                                                                  const LlamaArguments& arguments,
                                                                  llamacpp::Mode mode) {
  Bar bar("hashing the model, once", shows_progress(arguments));
  llamacpp::ContextOptions options;
  options.model_files = model.files();
  options.mode = mode;
  options.page_tokens = arguments.page_tokens;
  options.snapshots_per_prompt = arguments.snapshots;
  options.tenant = arguments.tenant;
  for (const LoraArgument& lora : arguments.loras) options.adapters.push_back({lora.file, lora.scale});
  options.hashing = [&bar](const std::string& file, std::uint64_t bytes) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(file, error);
    bar.update(bytes, error ? 0 : size);
  };
  if (arguments.log != Logged::kNothing)
    options.log = [](const std::string& line) { remark("cache: " + line); };
  auto cache = llamacpp::ContextCache::attach(context.get(), context.params, std::move(options));
  if (!cache) return refuse(cache.status());
  return *std::move(cache);
}

LlamaResult<std::shared_ptr<llamacpp::Store>> open_store(const LlamaArguments& arguments,
                                                         const std::string& folder,
                                                         std::chrono::nanoseconds wait, std::string& note,
                                                         std::chrono::nanoseconds wait_for_remote) {
  llamacpp::StoreOptions options;
  options.folder = folder;
  options.cache_bytes = arguments.cache_bytes;
  if (arguments.host_bytes != 0) options.host_bytes = arguments.host_bytes;
  options.wait_ns = static_cast<std::uint64_t>(wait.count());
  options.remote = arguments.remote;
  options.remote_wait_ns = static_cast<std::uint64_t>(wait_for_remote.count());
  Bar bar("opening the cache", shows_progress(arguments));
  options.progress = on_store_progress;
  options.progress_context = &bar;
  auto store = llamacpp::Store::open(options);
  if (store) return *std::move(store);
  const Status status = store.status();
  if (status.code != TIERCEL_UNAVAILABLE) return refuse(status);  // nothing that waiting would mend
  note = status.message;
  return std::shared_ptr<llamacpp::Store>();
}

LlamaResult<LlamaPrefill> prefill_cached(llamacpp::ContextCache& cache, std::span<const llama_token> prompt) {
  auto prefilled = cache.prefill(0, prompt);
  if (prefilled) return LlamaPrefill{*std::move(prefilled), false};
  if (prefilled.status().code == TIERCEL_CANCELLED) return LlamaPrefill{{}, true};
  return refuse(prefilled.status());
}

std::string remote_lack(llamacpp::Store& store) {
  auto stats = sized<tiercel_remote_stats>();
  if (tiercel_remote_stats_read(store.node().get(), &stats, nullptr) != TIERCEL_OK) return "";
  if (stats.ready == 0)
    return fmt::format("the remote store is not ready: {}; this goes on without it", stats.why_not);
  if (stats.down != 0)
    return "the remote store does not answer; this goes on without it (tiercel doctor --remote says more)";
  return "";
}

LlamaSaved saved_since_open(llamacpp::Store& store, const llamacpp::ContextCache& cache,
                            const LlamaArguments& arguments, std::uint64_t beyond) {
  LlamaSaved saved;
  static_cast<void>(store.flush());  // what it did not do, closing does, and says
  const auto stats = store.node().disk_stats();
  if (!stats) return saved;
  saved.class_sets = stats->appended;
  saved.bytes = stats->appended_bytes;
  // A page stands for its tokens, a snapshot or a whole state for all before it.
  const bool paged = cache.token_bytes() != 0;
  saved.tokens = std::min(beyond, paged ? saved.class_sets * arguments.page_tokens : beyond);
  if (saved.class_sets == 0) saved.tokens = 0;
  return saved;
}

std::optional<LlamaLack> lacking_room(llamacpp::Store& store, const llamacpp::ContextCache& cache,
                                      const LlamaContext& context, const LlamaArguments& arguments,
                                      std::size_t tokens) {
  const auto stats = store.node().disk_stats();
  if (!stats) return std::nullopt;
  std::uint64_t pages = tokens / arguments.page_tokens;
  if (cache.sequence_kind() == llamacpp::SequenceKind::kWhole)
    pages = llama_state_seq_get_size(context.get(), 0) / kMiB + 1;
  const std::uint64_t page = bytes_on_disk(page_bytes(cache, arguments));
  const std::uint64_t snapshot = bytes_on_disk(cache.snapshot_bytes());
  const std::uint64_t record = std::max(page, snapshot);
  LlamaLack lack;
  lack.wanted_bytes = pages * page + snapshot;
  if (pages == 0 || record == 0) return std::nullopt;
  // Records stand in one region; two regions are being written or emptied.
  constexpr std::uint64_t kBusyRegions = 2;
  const std::uint64_t regions = stats->regions - std::min(stats->regions, kBusyRegions);
  lack.room_bytes = regions * (stats->region_bytes / record) * record;
  if (lack.wanted_bytes <= lack.room_bytes) return std::nullopt;
  // A small cache has eight regions or so: each is large enough for two records then.
  lack.enough_bytes = std::bit_ceil(std::max({4 * lack.wanted_bytes, 16 * record, kMiB}));
  return lack;
}

std::string lack_text(const LlamaLack& lack) {
  return fmt::format(
      "the cache is too small: prompt and answer take {} of disk, it has room for {}, so they are not "
      "restored "
      "the next time; give a new folder, and --cache-bytes {}MiB",
      size_text(lack.wanted_bytes), size_text(lack.room_bytes), lack.enough_bytes / kMiB);
}

}  // namespace tiercel::apps
