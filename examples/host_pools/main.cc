// The host pools of a hybrid model, in shared memory: full attention, a window and a recurrent state, each in
// one call, addressed page by page. Run: host_pools
#include <cstdio>

#include <tiercel/tiercel.hpp>

int main() {
  const auto spec = tiercel::Spec::from_json(R"({
    "tiercel_spec": 1, "model_type": "hybrid", "page_tokens": 64, "topology": {"tp": 1}, "groups": [
      {"kind": "full", "layers": [3, 7], "components": [{"name": "k", "shape": [2, 128], "dtype": "bf16"},
                                                        {"name": "v", "shape": [2, 128], "dtype": "bf16"}]},
      {"kind": "window", "window_tokens": 256, "layers": [1, 5], "components": [
                                                        {"name": "k", "shape": [2, 128], "dtype": "bf16"},
                                                        {"name": "v", "shape": [2, 128], "dtype": "bf16"}]},
      {"kind": "state", "layers": [0, 2, 4, 6], "components": [
                                                        {"name": "temporal", "shape": [8, 64, 64], "dtype": "f32"}]}]})");
  if (!spec) return std::fprintf(stderr, "%s\n", spec.status().to_string().c_str()), 1;
  auto options = tiercel::sized<tiercel_host_pools_options>();
  options.layout = "page_first_direct";
  options.memory = "shared";
  options.total_bytes = 64 << 20;
  const auto pools = tiercel::HostPools::open(*spec, options);
  if (!pools) return std::fprintf(stderr, "%s\n", pools.status().to_string().c_str()), 1;
  const auto info = pools->describe();
  std::printf("%d pools, %d MiB in one file of shared memory, to be registered as %d range\n",
              static_cast<int>(info->pools), static_cast<int>(info->mapped_bytes >> 20),
              static_cast<int>(info->ranges));
  for (std::uint32_t pool = 0; pool < info->pools; ++pool) {
    const auto each = pools->pool(pool);
    std::printf("%s: %d pages of %d KiB\n", each->name, static_cast<int>(each->pages),
                static_cast<int>(each->page_bytes >> 10));
    for (const tiercel_pool_segment& segment : *pools->segments(pool, 1))
      std::printf("  page 1, component %d: %d KiB at offset %d KiB\n", static_cast<int>(segment.component),
                  static_cast<int>(segment.size >> 10), static_cast<int>(segment.offset >> 10));
  }
  return 0;
}
