// A record's header: which record this is, and a checksum for each layer of its payload and for itself. The
// header comes first, the payload follows at once. Every byte is in docs/format.md.
//
// Threads: plain values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/sha256.h"
#include "base/status.h"
#include "model/key_chain.h"
#include "model/storage_form.h"

namespace tiercel {

inline constexpr std::uint16_t kRecordVersion = 1;
// Headers are a multiple of this long: where a record starts aligned to it (or less), so does its payload.
inline constexpr std::uint64_t kRecordAlignment = 64;

// What an engine itself called the page, kept for events and never compared; size 0 = none.
struct ExternalDigest {
  std::array<std::byte, kExternalDigestBytesMax> bytes{};  // those beyond `size` are 0
  std::uint8_t size = 0;
  friend bool operator==(const ExternalDigest&, const ExternalDigest&) = default;
};

// Which record it is.
struct RecordLabel {
  Digest root{};  // of the content identity
  Key key;
  ClassId cls;
  ShardId shard;
  std::uint32_t generation = 0;  // never 0 in a record
  ExternalDigest external;
  friend bool operator==(const RecordLabel&, const RecordLabel&) = default;
};

struct RecordHeader {
  RecordLabel label;
  Digest form{};                    // fingerprint of the storage form
  std::uint64_t payload_bytes = 0;  // of the record as the model has it
  std::uint64_t kept_bytes = 0;     // of those, the first so many really follow (all, except in a thin arena)
  std::vector<std::uint32_t> run_checksums;  // CRC32C of each layer run's kept bytes, in the class's order
  friend bool operator==(const RecordHeader&, const RecordHeader&) = default;
};

// Fixed for a class: one run for each of its layers. A multiple of kRecordAlignment.
std::uint64_t header_bytes(const ClassForm& cls);
// Header, payload and rounding: what one record takes of its pool.
std::uint64_t slot_bytes(const ClassForm& cls);

// Bytes of a run that a record with this many kept bytes really has: all, a first part, or none.
std::uint64_t kept_of_run(const LayerRun& run, std::uint64_t kept_bytes);
// Of the run's kept bytes, where `kept_payload` is the record's payload from its start. Where the payload is
// in pieces, crc32c() over them in order gives the same.
std::uint32_t run_checksum(const LayerRun& run, ByteView kept_payload);
std::vector<std::uint32_t> run_checksums(const ClassForm& cls, ByteView kept_payload);

// The header of a record of class label.cls. Requires: generation not 0, one checksum for each layer of the
// class, kept_bytes at most its record_bytes.
RecordHeader make_header(const StorageForm& form, const RecordLabel& label, std::uint64_t kept_bytes,
                         std::vector<std::uint32_t> run_checksums);
// Writes all of `out`. Requires: out is exactly as long as the header (header_bytes of its class).
void encode_header(const RecordHeader& header, MutableByteView out);

// Reads a header of any record: `bytes` starts with it and may go on. Says nothing about the payload.
// Errors: data_corrupt naming the field, what was wanted, what it was. Cost: never reads beyond `bytes`, and
// allocates no more than their length.
Result<RecordHeader> parse_header(ByteView bytes);
// The same for a record that must be `label` (its external digest is not compared; generation 0 = any) under
// `form`, with so many bytes kept. Errors: data_corrupt naming the first field that differs.
Result<RecordHeader> decode_header(ByteView bytes, const StorageForm& form, const RecordLabel& label,
                                   std::uint64_t kept_bytes);

// Whether run number `run` of the class, read back with checksum `got`, is what was written.
// Errors: data_corrupt naming the layer.
Status check_run(const RecordHeader& header, const ClassForm& cls, std::size_t run, std::uint32_t got);

}  // namespace tiercel
