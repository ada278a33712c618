#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tiercel::detail {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "tiercel: internal error: %s is false at %s:%d\n", condition, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace tiercel::detail
