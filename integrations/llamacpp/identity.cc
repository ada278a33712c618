#include "identity.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include <fmt/format.h>
#include <ggml.h>

#include "sha256.h"
#include "weights_revision.h"

namespace tiercel::llamacpp {
namespace {

constexpr const char* kRecords = "1";  // version of what is stored (docs/format.md)

std::string metadata(const llama_model* model, const std::string& key) {
  std::array<char, 256> text{};
  return llama_model_meta_val_str(model, key.c_str(), text.data(), text.size()) < 0 ? "" : text.data();
}

// Bits, not digits: two numbers that print alike are not the same parameter.
std::string number(float value) { return fmt::format("{:a}", value); }

std::string rope_text(const llama_context* context, const llama_context_params& params) {
  const llama_model* model = llama_get_model(context);
  std::string text = fmt::format("scaling={} base={} scale={} yarn={}/{}/{}/{}/{}",
                                 static_cast<int>(params.rope_scaling_type), number(params.rope_freq_base),
                                 number(params.rope_freq_scale), number(params.yarn_ext_factor),
                                 number(params.yarn_attn_factor), number(params.yarn_beta_fast),
                                 number(params.yarn_beta_slow), params.yarn_orig_ctx);
  // Models with two sets of factors take the long ones when the context is longer than the original one.
  const std::string original =
      metadata(model, metadata(model, "general.architecture") + ".rope.scaling.original_context_length");
  const auto trained = static_cast<std::uint32_t>(std::max(llama_model_n_ctx_train(model), 0));
  const std::uint32_t limit = params.yarn_orig_ctx != 0 ? params.yarn_orig_ctx
                              : original.empty()
                                  ? trained
                                  : static_cast<std::uint32_t>(std::strtoul(original.c_str(), nullptr, 10));
  return text + (llama_n_ctx_seq(context) > limit ? " context=long" : " context=short");
}

Result<std::string> adapter_text(const std::vector<LoraAdapter>& adapters) {
  std::string text;
  for (const LoraAdapter& adapter : adapters) {
    const auto hash = weights_revision(std::span(&adapter.file, 1));
    if (!hash) return hash.status();
    text += fmt::format("{}{}@{}", text.empty() ? "" : ",", *hash, number(adapter.scale));
  }
  return text;
}

std::string build_text() {
  std::string text = fmt::format("llama {} ggml {} {}", llama_version(), ggml_version(), ggml_commit());
#ifdef TIERCEL_LLAMA_BUILD  // hash of the library's code (cmake/Llama.cmake)
  text += std::string(" ") + TIERCEL_LLAMA_BUILD;
#endif
  return text;
}

}  // namespace

Result<Identity> make_identity(llama_context* context, const llama_context_params& params,
                               const ContextOptions& options, const ModelLayout& layout) {
  const llama_model* model = llama_get_model(context);
  Identity identity;
  auto weights = weights_revision(options.model_files, options.hashing);
  if (!weights) return weights.status();
  identity.weights = *std::move(weights);
  identity.model = metadata(model, "general.architecture");
  identity.dtype = fmt::format("k={} v={}", ggml_type_name(params.type_k), ggml_type_name(params.type_v));
  identity.rope = rope_text(context, params);
  const std::string kernel = !layout.transposed
                                 ? fmt::format("flash_attn_type={}", static_cast<int>(params.flash_attn_type))
                             : *layout.transposed ? "values transposed"
                                                  : "flash attention";
  identity.attention = fmt::format("type={} {}", static_cast<int>(params.attention_type), kernel);
  auto adapters = adapter_text(options.adapters);
  if (!adapters) return adapters.status();
  identity.adapter = *std::move(adapters);
  identity.other = {{"records", kRecords},
                    {"build", build_text()},
                    {"state_version", fmt::format("{}", LLAMA_STATE_SEQ_VERSION)},
                    {"mode", options.mode == Mode::kExact ? "exact" : "fast"},
                    {"probe", layout.fingerprint}};
  if (options.mode == Mode::kExact) {  // these change bits, not values
    identity.other.emplace_back("processor", llama_print_system_info());
    identity.other.emplace_back("micro_batch", fmt::format("{}", llama_n_ubatch(context)));
  }
  // A tenant's name is a secret: whoever knows it can ask for its prompts.
  if (!options.tenant.empty()) identity.tenant = hex(sha256(options.tenant));
  for (const auto& [name, value] : options.other) identity.other.emplace_back("user." + name, value);
  return identity;
}

std::string Identity::text() const {
  std::string lines = fmt::format("model: {}\nweights: {}\ndtype: {}\nrope: {}\nattention: {}\n", model,
                                  weights, dtype, rope, attention);
  if (!tenant.empty()) lines += fmt::format("tenant: sha256 {}\n", tenant);
  if (!adapter.empty()) lines += fmt::format("adapter: {}\n", adapter);
  for (const auto& [name, value] : other) lines += fmt::format("{}: {}\n", name, value);
  return lines;
}

tiercel_identity identity_view(const Identity& identity, std::vector<tiercel_pair>& pairs) {
  pairs.clear();
  for (const auto& [name, value] : identity.other) pairs.push_back({name.c_str(), value.c_str()});
  auto view = sized<tiercel_identity>();
  view.model = identity.model.c_str();
  view.weights = identity.weights.c_str();
  view.dtype = identity.dtype.c_str();
  view.rope = identity.rope.c_str();
  view.attention = identity.attention.c_str();
  view.adapter = identity.adapter.c_str();
  view.other = pairs.data();
  view.other_count = pairs.size();
  return view;
}

}  // namespace tiercel::llamacpp
