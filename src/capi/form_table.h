// What the ABI tells of a storage form, and what it is told in its terms: components numbered within their
// class, runs, registered memory, records in pieces.
//
// Threads: plain values, immutable once made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tiercel/types.h>

#include "base/ids.h"
#include "base/status.h"
#include "capi/engine_memory.h"
#include "model/storage_form.h"

namespace tiercel::capi {

struct ClassTable {
  std::vector<std::string> components;  // names; number in the class = index
  std::vector<tiercel_run_info> runs;   // names point into `components`
};

struct FormTable {
  FormId id;
  StorageForm form;
  std::vector<ClassTable> classes;

  FormTable(FormId form_id, const StorageForm& storage_form);
  FormTable(const FormTable&) = delete;  // its runs point into itself
  FormTable& operator=(const FormTable&) = delete;
};

// Errors: invalid_argument: no such class, or none with such a shard.
Status check_class(const FormTable& table, std::uint32_t class_id, std::uint32_t shard);

// What the node is told of registered memory. Requires: check_class() of the options is ok.
// Errors: invalid_argument: a run of the class is described twice or not at all, an address wraps.
Result<DevicePool> make_device_pool(const FormTable& table, const tiercel_memory_options& options);

// The record's memory in record order. Requires: check_class() is ok. Errors: invalid_argument: an unknown
// component, NULL. *fits is false, and nothing else is said, when the sizes are not the record's.
Result<Pieces> make_pieces(const FormTable& table, std::uint32_t class_id,
                           const tiercel_record_memory& record, bool* fits);

}  // namespace tiercel::capi
