// What the families of model types share: numbers that remember their fields, tensors of one layer, and the
// collection of layers into groups.
//
// Threads: a ModelReader is used by one thread; the rest are plain values.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/hf_config.h"
#include "model/hf_config_fields.h"
#include "model/spec.h"

namespace tiercel::hf {

using Layers = std::vector<std::uint32_t>;

// A number and the field or fields that it comes from: what a message about it must name.
struct Amount {
  std::uint64_t value = 0;
  std::string from;
};

// The components of one layer.
struct Tensors {
  std::vector<Component> components;
  bool replicated = false;
  std::string from;  // fields of all shapes
};

struct ModelRule;

class ModelReader final {
 public:
  // Requires: `layers` = num_hidden_layers, within 1 .. kMaxLayers.
  ModelReader(const ConfigFields& fields, const ConfigFields& outer, const HfOptions& options,
              const ModelRule& rule, std::uint32_t layers);

  const ConfigFields& fields() const { return fields_; }
  const HfOptions& options() const { return options_; }
  const ModelRule& rule() const { return rule_; }
  std::uint32_t layers() const { return layers_; }

  // Numbers. Errors (here and below): invalid_argument that names file and fields.
  Result<Amount> amount(std::string_view key) const { return amount(fields_, key); }
  Result<Amount> amount(const ConfigFields& fields, std::string_view key) const;
  Result<Amount> sum(const Amount& a, const Amount& b) const;
  Result<Amount> product(const Amount& a, const Amount& b) const;
  Result<Amount> quotient(const Amount& whole, const Amount& parts) const;  // must divide
  Result<Amount> per_rank(const Amount& whole) const;                       // whole / tp, must divide
  Result<Amount> taps(const Amount& kernel) const;                          // kernel - 1, at least 1

  // Tensors.
  Result<void> append(Tensors& tensors, std::string_view name, std::initializer_list<Amount> shape,
                      DType dtype) const;
  DType kv_dtype() const { return options_.dtype; }
  Result<DType> model_dtype() const;     // dtype or torch_dtype, inside or outside; bf16
  Result<DType> temporal_dtype() const;  // the option, the file's field, f32

  // Attention. Every use checks that tp divides the query heads.
  Result<Amount> query_heads() const;
  Result<Amount> kv_heads() const;  // num_key_value_heads or what stands for it
  Result<Amount> head_dim() const;
  // k and v of `kv` heads in all, shared out or copied over the ranks.
  Result<Tensors> kv_tensors(const Amount& kv, const Amount& k_dim, const Amount& v_dim) const;
  Result<Tensors> standard_kv() const;

  // Layers.
  Layers all_layers() const;
  Layers layers_where(const std::vector<std::size_t>& choices, std::size_t place) const;
  // The layers that `key` lists (from `first` on), and all others.
  struct Partition {
    Layers listed;
    Layers others;
  };
  Result<Partition> partition(std::string_view key) const;

  // Groups. Nothing happens for no layers.
  void add(GroupKind kind, const Layers& layers, const Tensors& tensors, std::uint64_t tokens_per_entry = 1);
  Result<void> add_window(const Layers& layers, const Tensors& tensors);  // of sliding_window tokens

  // The spec of all that was added, validated. Call once.
  Result<ModelSpec> finish(std::string model_type) &&;

 private:
  tl::unexpected<Status> too_large(const std::string& from) const;
  Result<std::vector<std::uint32_t>> draft_layers() const;
  void resolve_followers(ModelSpec& spec) const;
  Result<void> check_sizes(const ModelSpec& spec) const;

  const ConfigFields& fields_;
  const ConfigFields& outer_;
  const HfOptions& options_;
  const ModelRule& rule_;
  std::uint32_t layers_;
  std::vector<Group> groups_;
  std::vector<std::string> from_;  // beside groups_: the fields of each group's shapes
};

// One row of the table of model types.
struct ModelRule {
  std::string_view model_type;
  Result<void> (*read)(ModelReader&);
  std::uint64_t head_dim = 0;  // when the file has none; 0: hidden_size / num_attention_heads
  // Of the class itself, for files without num_attention_heads; 0: the file must say it.
  std::uint64_t query_heads = 0;
  std::uint64_t kv_heads = 0;
  std::uint64_t period = 0;  // without a list of layers: layer i is full where (i + 1) mod period = 0
};

// Families. Attention with K and V (hf_config_attention.cc):
Result<void> read_full_or_window(ModelReader& reader);
Result<void> read_all_window(ModelReader& reader);
Result<void> read_window_above(ModelReader& reader);
Result<void> read_even_window(ModelReader& reader);
Result<void> read_even_window_unless_listed(ModelReader& reader);
Result<void> read_periodic_full(ModelReader& reader);
Result<void> read_periodic_full_shared_tail(ModelReader& reader);
Result<void> read_gemma4(ModelReader& reader);
Result<void> read_mimo_v2(ModelReader& reader);
Result<void> read_hunyuan(ModelReader& reader);
Result<void> read_nemotron_nas(ModelReader& reader);
Result<void> read_minimax_m3(ModelReader& reader);
// Latents (hf_config_latent.cc):
Result<Tensors> latent_tensors(const ModelReader& reader);
Result<void> read_latent(ModelReader& reader);
Result<void> read_sparse_latent(ModelReader& reader);
Result<void> read_deepseek_v4(ModelReader& reader);
// Recurrent states, alone or beside attention (hf_config_state.cc):
Result<void> read_nemotron_h(ModelReader& reader);
Result<void> read_granite_hybrid(ModelReader& reader);
Result<void> read_bamba(ModelReader& reader);
Result<void> read_falcon_h1(ModelReader& reader);
Result<void> read_zamba2(ModelReader& reader);
Result<void> read_jamba(ModelReader& reader);
Result<void> read_mamba(ModelReader& reader);
Result<void> read_mamba2(ModelReader& reader);
Result<void> read_gated_delta(ModelReader& reader);
Result<void> read_kimi_linear(ModelReader& reader);
Result<void> read_minimax(ModelReader& reader);
Result<void> read_lfm2(ModelReader& reader);

}  // namespace tiercel::hf
