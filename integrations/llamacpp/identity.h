// What of a model and a context changes the bytes of a cached page: the content identity of its namespace.
//
// Threads: values; none.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tiercel/llamacpp.hpp>

#include "model_layout.h"

namespace tiercel::llamacpp {

struct Identity {
  std::string model, weights, dtype, rope, attention, adapter;
  std::string tenant;  // hashed, for people: the salt itself is the session's
  std::vector<std::pair<std::string, std::string>> other;

  // For people, a line for each field.
  std::string text() const;
};

// Errors: those of weights_revision().
Result<Identity> make_identity(llama_context* context, const llama_context_params& params,
                               const ContextOptions& options, const ModelLayout& layout);

// The same as an argument of the ABI, which points into `identity` and `pairs`.
tiercel_identity identity_view(const Identity& identity, std::vector<tiercel_pair>& pairs);

}  // namespace tiercel::llamacpp
