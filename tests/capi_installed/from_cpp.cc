#include <cstdio>

#include <tiercel/tiercel.h>

int main() {
  tiercel_error error{};
  tiercel_node_options options{};
  options.size = sizeof options;
  options.host_bytes = 16 << 20;
  tiercel_node* node = nullptr;
  if (tiercel_node_open(&options, &node, &error) != TIERCEL_OK) {
    std::fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  std::printf("from C++, statically: version %u\n", tiercel_abi_version());
  return tiercel_node_close(node, nullptr) == TIERCEL_OK ? 0 : 1;
}
