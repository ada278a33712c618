// main() of the program: it is also the other process of those tests that need one.
#include "llamacpp_puppet_for_test.h"

int main(int argc, char** argv) {
  if (tiercel::llamacpp::is_puppet(argc, argv)) return tiercel::llamacpp::puppet_main(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
