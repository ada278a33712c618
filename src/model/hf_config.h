// Reader of Hugging Face `config.json` files: which layer keeps what, derived from the published fields.
//
// The rules stand as one row per model type (hf_config.cc) over a few families; which fields a row reads, and
// nothing else, decides. Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/spec.h"

namespace tiercel {

inline constexpr std::uint64_t kMaxRanks = 65'535;

struct HfOptions {
  DType dtype = DType::kBf16;  // of keys, values and latents
  std::uint64_t tp = 1;        // at most kMaxRanks
  std::uint64_t page_tokens = 64;
  std::optional<DType> state_dtype;  // of temporal states only; beats the file
};

// The validated spec of the configuration `text`; `file` is only named in messages.
// Errors: invalid_argument, one line that begins with `file` and names the field or the option ("--tp") at
// fault. An error takes no more than the reading of the text.
Result<ModelSpec> read_hf_config(std::string_view text, std::string_view file, const HfOptions& options);

// `base` with the layers of a draft model as optional followers; they take the place of its draft_layers.
// Errors: invalid_argument, beginning with `draft_file`: the draft has a state, or the base has no full group
// to follow.
Result<ModelSpec> with_draft(ModelSpec base, const ModelSpec& draft, std::string_view draft_file);

// All model types that have a row, in the table's order.
std::vector<std::string_view> hf_model_types();

}  // namespace tiercel
