#include "llamacpp_bed_for_test.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include <unistd.h>

#include "identity.h"
#include "model_layout.h"

namespace tiercel::llamacpp {

// Below the build folder: what a killed test leaves goes with the next clean.
Folder::Folder() : path_((std::filesystem::path(TIERCEL_TEST_FOLDERS) / "XXXXXX").string()) {
  std::filesystem::create_directories(TIERCEL_TEST_FOLDERS);
  EXPECT_NE(::mkdtemp(path_.data()), nullptr);
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

StoreOptions store_options(const std::string& folder) {
  StoreOptions options;
  options.folder = folder;
  options.cache_bytes = 48 * kMiB;
  options.host_bytes = 32 * kMiB;
  options.wait_ns = 60'000'000'000;
  return options;
}

std::shared_ptr<Store> open_store(const StoreOptions& options) {
  auto store = Store::open(options);
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return store ? *std::move(store) : nullptr;
}

std::shared_ptr<Store> open_store(const std::string& folder) { return open_store(store_options(folder)); }

// ---- contexts ----

namespace {

ContextOptions context_options(const std::string& model_path, Mode mode, const Adjust& adjust) {
  ContextOptions options;
  options.model_files = {model_path};
  options.mode = mode;
  if (adjust) adjust(options);
  return options;
}

}  // namespace

Plain& Engine::plain() const {
  Shape alone = shape;
  alone.sequences = 1;
  alone.unified = false;
  return plain_of(model_path, alone);
}

std::uint32_t Engine::longest(std::size_t prompt_tokens) const {
  return longest_restore(
      {static_cast<std::uint32_t>(prompt_tokens), shape.micro_batch, options.page_tokens, exact()});
}

Engine attach(const std::string& model_path, const Shape& shape, Mode mode, const Adjust& adjust) {
  Engine engine{model_path, shape, context_options(model_path, mode, adjust),
                make_context(load_model(model_path), shape.params()), nullptr};
  auto cache = ContextCache::attach(engine.context.get(), shape.params(), engine.options);
  EXPECT_TRUE(cache.ok()) << model_path << ": " << cache.status().to_string();
  if (cache) engine.cache = *std::move(cache);
  return engine;
}

Status attach_refusal(const std::string& model_path, const Shape& shape, Mode mode, const Adjust& adjust) {
  const Context context = make_context(load_model(model_path), shape.params());
  return ContextCache::attach(context.get(), shape.params(), context_options(model_path, mode, adjust))
      .status();
}

// ---- turns ----

Turn turn(Engine& engine, llama_seq_id sequence, const Text& prompt) {
  auto done = engine.cache->prefill(sequence, prompt);
  EXPECT_TRUE(done.ok()) << done.status().to_string();
  if (!done) return {};
  const std::uint32_t restored = done->restored.tokens;
  EXPECT_EQ(done->computed_tokens, prompt.size() - restored);
  EXPECT_EQ(std::accumulate(done->pieces.begin(), done->pieces.end(), 0U), done->computed_tokens);
  EXPECT_EQ(done->restored.limit, engine.longest(prompt.size()));
  EXPECT_LE(restored, done->restored.limit);
  EXPECT_LE(done->snapshots, engine.options.snapshots_per_prompt);
  EXPECT_EQ(engine.last_position(sequence), static_cast<llama_pos>(prompt.size()) - 1);
  if (prompt.empty()) return {*std::move(done), {}};
  Answer answer = answer_of(engine.context.get(), sequence, prompt.size());
  return {*std::move(done), std::move(answer)};
}

Turn right_turn(Engine& engine, llama_seq_id sequence, const Text& prompt) {
  Turn done = turn(engine, sequence, prompt);
  if (!engine.exact() || prompt.empty()) return done;
  EXPECT_TRUE(same_bits(engine.plain().answer(prompt), done.answer))
      << prompt.size() << " tokens, " << done.prefilled.restored.tokens << " of them restored; "
      << engine.model_path;
  return done;
}

testing::AssertionResult same_as_split(const Engine& engine, std::uint32_t restored, const Answer& wanted,
                                       const Answer& got) {
  // Window cells are restored to the start of their cache. The kernel for 64 rows and more sees that when
  // they stood elsewhere modulo 64 before.
  const auto window = static_cast<std::uint32_t>(std::max(llama_model_n_swa(engine.model()), 0));
  const bool moved =
      !engine.exact() && window != 0 && restored > window && (restored - window) % kTileRows != 0;
  return moved ? same_choices(wanted, got) : same_bits(wanted, got);
}

// ---- the store's side ----

std::vector<tiercel_status> Pages::there(std::uint32_t class_id) const {
  auto found = space.exists(class_id, keys);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  return found ? *std::move(found) : std::vector<tiercel_status>{};
}

Pages pages_of(const Engine& engine, Store& store, const Text& prompt) {
  const Context context = make_context(load_model(engine.model_path), engine.shape.params());
  const auto layout = probe_layout(context.get(), engine.options.opaque);
  const auto identity = make_identity(context.get(), engine.shape.params(), engine.options, *layout);
  const auto form = store.node().open_form(*make_spec(*layout, engine.options.page_tokens), one_rank());
  auto client = sized<tiercel_session_options>();
  client.tenant_salt = {engine.options.tenant.data(), engine.options.tenant.size()};
  std::vector<tiercel_pair> pairs;
  const tiercel_identity view = identity_view(*identity, pairs);
  Pages pages{*store.node().open_session(&client), {}, {}};
  pages.space = *pages.session.open_namespace(*form, view);
  tiercel_key_chain chain = *pages.space.start_chain();
  const std::vector<std::uint32_t> tokens(prompt.begin(), prompt.end());
  pages.keys = *pages.space.keys_from_tokens(chain, tokens);
  return pages;
}

}  // namespace tiercel::llamacpp
