// Whether bytes on the drive are the class-set that a descriptor names, whole: without the model, by the run
// lengths that the namespace's name keeps.
//
// Threads: one thread.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "disk/disk_log.h"
#include "disk/format.h"
#include "model/storage_form.h"

namespace tiercel::disk {

class RecordCheck final {
 public:
  // `record`: from the start of shard `shard`'s record on, as long as one stride. `name`: null where the
  // namespace is not known; then, and where it knows no runs of the class, only the header is checked.
  // `generation`: 0, or what the shards before had; set. Errors: data_corrupt: what is wrong.
  Status check(ByteView record, const Descriptor& descriptor, std::uint16_t shard, const DiskSpaceName* name,
               std::uint32_t& generation);

 private:
  // The class as far as checksums need it; null: no runs are known.
  const ClassForm* class_of(const Descriptor& descriptor, const DiskSpaceName& name);
  std::map<std::pair<std::uint32_t, ClassId>, ClassForm> classes_;
};

}  // namespace tiercel::disk
