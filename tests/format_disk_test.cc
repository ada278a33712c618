// The test vectors of docs/format.md that a log on a drive is made of, recomputed by the library.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "disk/catalogue.h"
#include "disk/disk_index.h"
#include "disk/format.h"
#include "disk/removals.h"
#include "format_vectors.h"
#include "os/block_device.h"

namespace tiercel::disk {
namespace {

using Bytes = std::vector<std::byte>;

Uuid uuid_of(const Json& given) {
  Uuid uuid{};
  const Bytes bytes = bytes_of(text_at(given, "uuid"));
  EXPECT_EQ(bytes.size(), uuid.size());
  std::copy_n(bytes.begin(), std::min(bytes.size(), uuid.size()), uuid.begin());
  return uuid;
}

// First bytes, zeros, the last four.
Bytes block_of(const Json& gives) {
  Bytes block = bytes_of(text_at(gives, "fields"));
  const Bytes checksum = bytes_of(text_at(gives, "checksum"));
  block.resize(kBlockBytes - checksum.size());
  block.insert(block.end(), checksum.begin(), checksum.end());
  return block;
}

TEST(FormatDisk, SuperblocksAreAsTheDocumentSays) {
  for (const Json& each : vectors("disk_superblock")) {
    const Json& given = each.at("given");
    Superblock s;
    s.uuid = uuid_of(given);
    s.sequence = given.at("sequence");
    s.epoch = given.at("epoch");
    DiskGeometry& g = s.geometry;
    const std::pair<const char*, std::uint64_t*> fields[] = {{"size_bytes", &g.size_bytes},
                                                             {"region_bytes", &g.region_bytes},
                                                             {"regions", &g.regions},
                                                             {"index_buckets", &g.index_buckets},
                                                             {"catalogue_bytes", &g.catalogue_bytes},
                                                             {"removals_max", &g.removals_max},
                                                             {"image_bytes", &g.image_bytes},
                                                             {"regions_offset", &g.regions_offset}};
    for (const auto& [name, field] : fields) *field = given.at(name);
    g.image_offset[0] = given.at("image_offset").at(0);
    g.image_offset[1] = given.at("image_offset").at(1);
    s.image_sequence = given.at("image_sequence");
    if (!given.at("image").is_null()) s.image = given.at("image").get<std::uint32_t>();
    s.closed = given.at("closed");
    EXPECT_EQ(encode(s), block_of(each.at("gives"))) << each.at("name");
    EXPECT_EQ(parse_superblock(block_of(each.at("gives"))).value(), s);
  }
}

TEST(FormatDisk, RegionHeadersAreAsTheDocumentSays) {
  for (const Json& each : vectors("disk_region")) {
    const Json& given = each.at("given");
    const RegionHeader header{uuid_of(given), given.at("region"), given.at("life"), given.at("first_at")};
    EXPECT_EQ(encode(header), block_of(each.at("gives"))) << each.at("name");
    EXPECT_EQ(parse_region_header(block_of(each.at("gives"))).value(), header);
  }
}

TEST(FormatDisk, ImageHeadersAreAsTheDocumentSays) {
  for (const Json& each : vectors("disk_image")) {
    const Json& given = each.at("given");
    const ImageHeader header{uuid_of(given),
                             given.at("sequence"),
                             given.at("from_at"),
                             given.at("to_at"),
                             given.at("last_life"),
                             given.at("from_life"),
                             given.at("index_buckets"),
                             given.at("catalogue_used"),
                             given.at("checksums_crc")};
    EXPECT_EQ(encode(header), block_of(each.at("gives"))) << each.at("name");
    EXPECT_EQ(parse_image_header(block_of(each.at("gives"))).value(), header);
  }
}

std::vector<Descriptor> entries_of(const Json& given) {
  std::vector<Descriptor> entries;
  for (const Json& each : given.at("entries")) {
    Descriptor d;
    d.kind = static_cast<EntryKind>(each.at("kind").get<std::uint8_t>());
    d.cls = ClassId(each.at("class").get<std::uint16_t>());
    d.shards = each.at("shards");
    d.space = each.at("space");
    d.key = key_of(each.at("key"));
    d.parent = key_of(each.at("parent"));
    d.born = each.at("born");
    d.length = each.at("length");
    d.block = each.at("block");
    d.blocks = each.at("blocks");
    entries.push_back(d);
  }
  return entries;
}

TEST(FormatDisk, SegmentsAreAsTheDocumentSays) {
  for (const Json& each : vectors("disk_segment")) {
    const Json& given = each.at("given");
    const std::vector<Descriptor> entries = entries_of(given);
    const SegmentHead head{uuid_of(given),         given.at("life"),
                           given.at("epoch"),      given.at("first_at"),
                           given.at("durable_at"), given.at("block"),
                           given.at("blocks"),     static_cast<std::uint32_t>(entries.size())};
    Bytes wanted = bytes_of(text_at(each.at("gives"), "directory"));
    EXPECT_EQ(wanted.size(), kSegmentHeadBytes + entries.size() * kDescriptorBytes);
    wanted.resize(directory_bytes(entries.size()));
    EXPECT_EQ(encode_directory(head, entries), wanted) << each.at("name");
    const Directory directory = parse_directory(wanted).value();
    EXPECT_EQ(directory.head, head);
    EXPECT_EQ(directory.entries, entries);
  }
}

TEST(FormatDisk, FootersAreAsTheDocumentSays) {
  for (const Json& each : vectors("disk_footer")) {
    const Json& given = each.at("given");
    const std::vector<Descriptor> entries = entries_of(given);
    const FooterTail tail{uuid_of(given),      given.at("region"),
                          given.at("life"),    given.at("first_at"),
                          given.at("last_at"), static_cast<std::uint32_t>(entries.size())};
    Bytes wanted = bytes_of(text_at(each.at("gives"), "entries"));
    const Bytes last = bytes_of(text_at(each.at("gives"), "tail"));
    wanted.resize(footer_bytes(entries.size()) - last.size());
    wanted.insert(wanted.end(), last.begin(), last.end());
    EXPECT_EQ(encode_footer(tail, entries), wanted) << each.at("name");
    const Footer footer = parse_footer(wanted).value();
    EXPECT_EQ(footer.tail, tail);
    EXPECT_EQ(footer.entries, entries);
  }
}

TEST(FormatDisk, EntriesOfTheIndexAreAsTheDocumentSays) {
  for (const Json& each : vectors("disk_index_entry")) {
    const Json& given = each.at("given");
    IndexEntry entry;
    entry.key = key_of(given.at("key"));
    entry.space = given.at("space");
    entry.cls = ClassId(given.at("class").get<std::uint16_t>());
    entry.block = given.at("block");
    entry.born = given.at("born");
    entry.uses = given.at("uses");
    entry.life = given.at("life");
    DiskIndex index = DiskIndex::create(given.at("buckets")).value();
    ASSERT_TRUE(index.put(entry));
    const auto buckets = each.at("gives").at("buckets").get<std::vector<std::uint64_t>>();
    EXPECT_EQ(hex_of(index.image(buckets.at(0) * kBucketBytes, kIndexEntryBytes)),
              text_at(each.at("gives"), "entry"));
    entry.cls = ClassId(9);  // another of the same page: the emptier bucket is the second
    ASSERT_TRUE(index.put(entry));
    EXPECT_EQ(hex_of(index.image(buckets.at(1) * kBucketBytes, 16)), text_at(given, "key"));
  }
}

std::pair<DiskSpaceId, DiskSpaceName> name_of(const Json& given) {
  DiskSpaceName name;
  name.root = digest_of(given.at("root"));
  name.form = digest_of(given.at("form"));
  name.text = text_at(given, "text");
  for (const Json& groups : given.at("runs")) {
    std::vector<std::uint64_t>& runs = name.runs.emplace_back();
    for (const Json& group : groups) runs.insert(runs.end(), group.at(0).get<std::size_t>(), group.at(1));
  }
  return {DiskSpaceId(given.at("id").get<std::uint32_t>()), name};
}

TEST(FormatDisk, NamesAreAsTheDocumentSays) {
  for (const Json& each : vectors("disk_name")) {
    const auto [id, name] = name_of(each.at("given"));
    EXPECT_EQ(hex_of(Catalogue::encode_name(id, name)), text_at(each.at("gives"), "payload"));
    EXPECT_EQ(Catalogue::parse_name(bytes_of(text_at(each.at("gives"), "payload"))).value().first, id);
  }
}

TEST(FormatDisk, CataloguesAreAsTheDocumentSays) {
  for (const Json& each : vectors("disk_catalogue")) {
    Catalogue catalogue(1 << 16);
    for (const Json& given : each.at("given").at("names")) {
      const auto [id, name] = name_of(given);
      EXPECT_EQ(catalogue.learn(id, name), Status{});
    }
    for (const Json& form : each.at("given").at("forms"))
      catalogue.note_form(digest_of(form.at("form")), form.at("cleared_at"), form.at("weights_epoch"));
    Bytes bytes;
    catalogue.append_to(bytes);
    EXPECT_EQ(hex_of(bytes), text_at(each.at("gives"), "bytes")) << each.at("name");
    EXPECT_EQ(Catalogue(1 << 16).load_from(bytes).value(), bytes.size());
  }
}

TEST(FormatDisk, RemovalsAreAsTheDocumentSays) {
  for (const Json& each : vectors("disk_removals")) {
    Removals removals(100);
    for (const Json& page : each.at("given").at("pages"))
      removals.remove_page(DiskSpaceId(page.at(0).get<std::uint32_t>()), key_of(page.at(1)), page.at(2));
    for (const Json& space : each.at("given").at("spaces"))
      removals.clear_space(DiskSpaceId(space.at(0).get<std::uint32_t>()), space.at(1));
    Bytes bytes;
    removals.append_to(bytes);
    EXPECT_EQ(hex_of(bytes), text_at(each.at("gives"), "bytes")) << each.at("name");
    EXPECT_EQ(Removals(100).load_from(bytes).value(), bytes.size());
  }
}

}  // namespace
}  // namespace tiercel::disk
