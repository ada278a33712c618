// The test vectors of docs/format.md for objects of the remote tier, recomputed by the library.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "format_vectors.h"
#include "remote/object_format.h"

namespace tiercel::remote {
namespace {

MarkerNumber number_of(const Json& hex) {
  MarkerNumber number{};
  const auto bytes = bytes_of(hex);
  EXPECT_EQ(bytes.size(), number.size());
  std::copy_n(bytes.begin(), std::min(bytes.size(), number.size()), number.begin());
  return number;
}

TEST(FormatRemote, ObjectsAreAsTheDocumentSays) {
  for (const Json& each : vectors("remote_object")) {
    const Json& given = each.at("given");
    ObjectLabel label;
    label.space = object_space(digest_of(given.at("root")), digest_of(given.at("form")),
                               number_of(given.at("form_marker")), number_of(given.at("namespace_marker")));
    label.key = key_of(given.at("key"));
    label.bundle = BundleId(given.at("bundle").get<std::uint16_t>());
    label.pages = given.at("pages");
    label.shard = ShardId(given.at("shard").get<std::uint16_t>());
    const std::uint64_t bytes = given.at("bytes");
    const std::uint64_t computation = std::stoull(text_at(given, "computation"), nullptr, 16);
    std::vector<std::byte> header(kObjectHeaderBytes);
    encode_object_header(label, computation, bytes, header);
    EXPECT_EQ(hex_of(header), text_at(each.at("gives"), "header")) << each.at("name");
    EXPECT_EQ(object_name(label), text_at(each.at("gives"), "name"));
    const auto wanted = bytes_of(text_at(each.at("gives"), "header"));
    EXPECT_EQ(parse_object_header(wanted, label, bytes).value(), computation);
  }
}

TEST(FormatRemote, MarkersAreAsTheDocumentSays) {
  for (const Json& each : vectors("remote_marker")) {
    const Json& given = each.at("given");
    const Json& gives = each.at("gives");
    const Digest root = digest_of(given.at("root")), form = digest_of(given.at("form"));
    EXPECT_EQ(form_marker_name(form), text_at(gives, "form_name"));
    EXPECT_EQ(namespace_marker_name(root, form), text_at(gives, "namespace_name"));
    std::vector<std::byte> marker(kMarkerBytes);
    encode_marker(number_of(given.at("number")), marker);
    EXPECT_EQ(hex_of(marker), text_at(gives, "bytes"));
    EXPECT_EQ(parse_marker(bytes_of(text_at(gives, "bytes"))).value(), number_of(given.at("number")));
  }
}

}  // namespace
}  // namespace tiercel::remote
