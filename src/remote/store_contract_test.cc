// The contract of a remote store, for a folder, with and without what file systems may lack, and for a
// connector in a process.
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>

#include "remote/connector_process.h"
#include "remote/posix_store.h"
#include "remote/test_remote.h"
#include "remote/test_store_contract.h"

namespace tiercel {
namespace {

// As a file system without files that have no name, or without hard links, too.
class PlainCalls final : public LinuxPosixCalls {
 public:
  explicit PlainCalls(bool links) : links_(links) {}
  SystemResult<int> open(int folder, const std::string& path, int flags, unsigned mode) const override {
    if ((flags & O_TMPFILE) == O_TMPFILE) return tl::unexpected(EOPNOTSUPP);
    return LinuxPosixCalls::open(folder, path, flags, mode);
  }
  int link(int folder, const std::string& from, const std::string& to) const override {
    return links_ ? LinuxPosixCalls::link(folder, from, to) : EPERM;
  }

 private:
  bool links_;
};

// What the cases of this program are made in; until it ends.
struct World {
  TestFolder folder;
  SteadyClock clock;
  LinuxChildProcesses processes;
  PlainCalls without_unnamed{true}, without_links{false};
  Mapping arena;
};
World& world() {
  static World one;
  return one;
}

MutableByteView arena() {
  World& all = world();
  if (all.arena.size_bytes() == 0) {
    auto opened = Mapping::open({.kind = MappingKind::kShared, .bytes = 2U << 20, .touch = {}, .numa = {}});
    if (opened) all.arena = std::move(*opened);
  }
  return all.arena.size_bytes() == 0 ? MutableByteView() : all.arena.bytes().subspan(4096);
}

StoreContractCase posix_case(const std::string& name, const PosixCalls& calls) {
  StoreContractCase contract{.name = name};
  const std::string folder = world().folder.path() + "/" + name;
  contract.arena = arena();
  contract.make = [folder, &calls](std::string&) -> std::unique_ptr<RemoteStore> {
    auto store = PosixStore::open({.folder = folder, .exchange_bytes = 32U << 20, .arena = arena()},
                                  world().clock, calls);
    EXPECT_TRUE(store) << (store ? "" : store.error().to_string());
    if (!store) return nullptr;
    return std::move(*store);
  };
  contract.damage = [folder](const std::string& of) {
    return flip_byte(folder + "/" + object_path(of), 100);
  };
  return contract;
}

StoreContractCase connector_case() {
  StoreContractCase contract{.name = "connector", .shared = false, .keeps = false};
  contract.arena = arena();
  contract.make = [](std::string&) -> std::unique_ptr<RemoteStore> {
    ConnectorOptions options = test_connector();
    options.arena = {world().arena.fd(), 4096, arena().size()};
    auto store = ConnectorProcess::open(options, world().clock, world().processes);
    EXPECT_TRUE(store) << (store ? "" : store.error().to_string());
    if (!store) return nullptr;
    return std::move(*store);
  };
  return contract;
}

INSTANTIATE_TEST_SUITE_P(Remote, StoreContract,
                         testing::Values(posix_case("posix", linux_posix_calls()),
                                         posix_case("posix_named", world().without_unnamed),
                                         posix_case("posix_renamed", world().without_links),
                                         connector_case()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace tiercel
