// main() of the program: it is also the other process of those tests that need one.
#include <cstdio>

#include "llamacpp_models_for_test.h"
#include "llamacpp_puppet_for_test.h"

int main(int argc, char** argv) {
  using namespace tiercel::llamacpp;
  if (is_puppet(argc, argv)) return puppet_main(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  if (const std::string why = models_missing(); !why.empty()) {  // the build writes them: no reason to skip
    std::fprintf(stderr, "llamacpp_test: %s\n", why.c_str());
    return 1;
  }
  return RUN_ALL_TESTS();
}
