// Another process with a context and a cache, led by lines: it does what it is told and answers with a line.
// It is this very program, started with arguments that main() of the tests knows.
//
//   open FOLDER WAIT_NS        "opened", or "refused" and why
//   prefill SEQUENCE SEED N    "answered RESTORED COMPUTED" and, in hexadecimal, the answer; N tokens of a
//   text save_on SEQUENCE SEED N    "stored N": the same without an answer, and flushed close "closed"
//
// Threads: one.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include <sys/types.h>

#include "llamacpp_bed_for_test.h"

namespace tiercel::llamacpp {

class Puppet {
 public:
  Puppet(const std::string& model, Mode mode, const Shape& shape = {});
  ~Puppet();  // ends it, in order, and waits for it
  Puppet(const Puppet&) = delete;
  Puppet& operator=(const Puppet&) = delete;

  void tell(const std::string& line);
  std::string hear();  // the next line it says; empty: it has ended
  std::string ask(const std::string& line) {
    tell(line);
    return hear();
  }
  pid_t pid() const { return pid_; }
  void kill_now();  // kill -9, and waits for it
  int end();        // its exit status; −1: it did not end by itself

 private:
  pid_t pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

struct PuppetAnswer {
  std::uint32_t restored = 0, computed = 0;
  Answer answer;
};
// Of a line "answered …"; nothing: it is another line.
std::optional<PuppetAnswer> puppet_answer(const std::string& line);

// The other side: what a process does that was started with such arguments. Returns: its exit status.
int puppet_main(int argc, char** argv);
bool is_puppet(int argc, char** argv);

}  // namespace tiercel::llamacpp
