// Any bytes at all as a trace: read, stopped at or skipped, never a crash, and the same whatever the source's
// pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/checked.h"
#include "trace/trace.h"

namespace {

// Gives its bytes a few at a time.
class DribblingSource final : public tiercel::ByteSource {
 public:
  explicit DribblingSource(std::string_view text) : source_(text) {}
  tiercel::Result<std::size_t> read(std::span<char> into) override {
    return source_.read(into.first(std::min<std::size_t>(into.size(), 1 + ++reads_ % 7)));
  }

 private:
  tiercel::TextSource source_;
  std::size_t reads_ = 0;
};

std::vector<tiercel::TraceRequest> read_all(tiercel::ByteSource& source) {
  tiercel::TraceReader reader(source, "fuzz", tiercel::TraceReader::OnDamage::kSkip);
  std::vector<tiercel::TraceRequest> requests;
  for (;;) {
    const auto request = reader.next();
    TIERCEL_CHECK(request.has_value());
    if (!*request) break;
    TIERCEL_CHECK((*request)->blocks.size() ==
                  tiercel::ceil_div((*request)->input_length, tiercel::kTraceBlockTokens));
    requests.push_back(**request);
  }
  TIERCEL_CHECK(requests.size() + reader.skipped() <= reader.line());
  return requests;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tiercel::TextSource whole(text);
  DribblingSource dribbling(text);
  const auto requests = read_all(whole);
  TIERCEL_CHECK(requests == read_all(dribbling));
  const auto statistics = tiercel::statistics_of(requests);
  TIERCEL_CHECK(statistics.ideal_hits + statistics.unique_blocks <= statistics.blocks);
  return 0;
}
