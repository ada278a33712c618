// A long text for a system prompt: the manual of a device that does not exist, the same in every run.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "llama_session.h"

namespace tiercel::apps {

// The first sentences of it, after `title`, that fit into a prompt of `tokens` tokens together with
// `question`. Errors: those of LlamaModel::tokenize.
LlamaResult<std::string> make_manual(const LlamaModel& model, const std::string& title, std::uint32_t tokens,
                                     const std::string& question);

// Two questions that its first page answers.
extern const char* const kFirstQuestion;
extern const char* const kOtherQuestion;

}  // namespace tiercel::apps
