#include "sim/disk_scene.h"

#include <algorithm>

#include <fmt/format.h>

namespace tiercel::sim {
namespace {

Digest digest_of(std::uint64_t number) {
  std::vector<std::byte> bytes;
  append_le<std::uint64_t>(bytes, number);
  return sha256(bytes);
}

DiskSpaceName space_name(const StorageForm& form, std::uint64_t seed, std::size_t number) {
  DiskSpaceName name;
  name.root = digest_of(mix64(seed) + number);
  name.form = form.fingerprint;
  name.text = fmt::format("space {}\n", number) + form.canonical;
  for (const ClassForm& cls : form.classes) {
    std::vector<std::uint64_t> lengths;
    for (const LayerRun& run : cls.layers) lengths.push_back(run.length);
    name.runs.push_back(std::move(lengths));
  }
  return name;
}

}  // namespace

DiskScene::DiskScene(DiskScenario of, std::uint64_t number)
    : scenario(std::move(of)),
      seed(number),
      prng(mix64(number) ^ 0xAC7),
      coverage(Coverage::of_disk(scenario.lying)) {
  for (std::size_t i = 0; i < scenario.spaces; ++i) {
    DiskSpace space;
    space.form = i % scenario.forms.size();
    space.name = space_name(scenario.forms[space.form], seed, i);
    spaces.push_back(std::move(space));
    book.add_space(i % scenario.forms.size());
  }
}

DiskScene::~DiskScene() { log.reset(); }

const ClassForm& DiskScene::class_form(const DiskSet& set) const {
  return scenario.forms[spaces[book.pages()[set.page].space].form].classes[set.cls.value()];
}

DiskName DiskScene::name_of(const DiskSet& set) const {
  const DiskPage& page = book.pages()[set.page];
  return {spaces[page.space].id, page.key, set.cls};
}

std::optional<DiskSet> DiskScene::set_of(const DiskName& name) const {
  for (std::size_t i = 0; i < spaces.size(); ++i) {
    if (spaces[i].id != name.space) continue;
    const auto page = page_of.find({i, name.key});
    if (page == page_of.end()) return std::nullopt;
    return DiskSet{page->second, name.cls};
  }
  return std::nullopt;
}

void DiskScene::complain(std::string_view checker, std::string message) {
  complaints.emplace(checker, std::move(message));
}

}  // namespace tiercel::sim
