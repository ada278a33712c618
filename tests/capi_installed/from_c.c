#include <stdio.h>
#include <tiercel/tiercel.h>

int main(void) {
  tiercel_error error;
  tiercel_node_options options = {.size = sizeof options, .host_bytes = 16 << 20};
  tiercel_node* node = NULL;
  if (tiercel_node_open(&options, &node, &error) != TIERCEL_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  printf("from C: version %u\n", (unsigned)tiercel_abi_version());
  return tiercel_node_close(node, &error) == TIERCEL_OK ? 0 : 1;
}
