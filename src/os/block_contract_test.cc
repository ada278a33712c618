// The contract of a block device, for each engine on a file of the temporary folder, past the page cache and
// through it, and on a file in memory.
#include <atomic>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "os/block_open.h"
#include "os/test_block_contract.h"

namespace tiercel {
namespace {

// The device, and its file until it is gone.
class OnFile final : public BlockDevice {
 public:
  OnFile(std::string path, std::unique_ptr<BlockDevice> device)
      : path_(std::move(path)), device_(std::move(device)) {}
  ~OnFile() override {
    device_.reset();
    std::remove(path_.c_str());
  }
  std::uint64_t size_bytes() const override { return device_->size_bytes(); }
  bool submit(BlockRequest request) override { return device_->submit(std::move(request)); }
  std::vector<BlockDone> drain() override { return device_->drain(); }
  void wait(Duration at_most) override { device_->wait(at_most); }

 private:
  std::string path_;
  std::unique_ptr<BlockDevice> device_;
};

BlockContractCase on_file(BlockEngine engine, bool direct, bool in_memory) {
  const std::string name = fmt::format("{}_{}{}", engine == BlockEngine::kUring ? "uring" : "threads",
                                       direct ? "direct" : "cached", in_memory ? "_in_memory" : "");
  return {name, [=](std::uint64_t bytes, std::string& why_not) -> std::unique_ptr<BlockDevice> {
            static std::atomic<int> count{0};
            const std::string folder = in_memory ? "/dev/shm/" : testing::TempDir();
            if (::access(folder.c_str(), W_OK) != 0) {
              why_not = folder + " cannot be written";
              return nullptr;
            }
            const std::string path = fmt::format("{}tiercel_contract_{}_{}", folder, ::getpid(), ++count);
            BlockDeviceOptions options;
            options.file = {.path = path, .bytes = bytes, .create = true, .direct = direct};
            options.engine = engine;
            auto opened = open_block_device(options);
            if (!opened && opened.error().code == Code::kUnsupported) why_not = opened.error().message;
            if (!opened) return std::remove(path.c_str()), nullptr;
            if (opened->direct != direct) why_not = folder + " refuses O_DIRECT";
            auto device = std::make_unique<OnFile>(path, std::move(opened->device));
            if (!why_not.empty()) return nullptr;
            return device;
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Files, BlockContract,
    testing::Values(on_file(BlockEngine::kUring, true, false), on_file(BlockEngine::kUring, false, false),
                    on_file(BlockEngine::kThreads, true, false), on_file(BlockEngine::kThreads, false, false),
                    on_file(BlockEngine::kUring, false, true), on_file(BlockEngine::kThreads, false, true)),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace tiercel
