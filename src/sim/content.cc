#include "sim/content.h"

#include <algorithm>

#include "base/check.h"
#include "base/prng.h"

namespace tiercel::sim {
namespace {

std::uint64_t layer_seed(const RecordName& name, std::uint32_t layer) {
  std::uint64_t seed = mix64(name.root);
  seed = mix64(seed ^ name.key.words[0]);
  seed = mix64(seed ^ name.key.words[1]);
  seed = mix64(seed ^ (std::uint64_t{name.cls.value()} << 32 | name.shard.value()));
  return mix64(seed + layer);
}

// Bytes 0–7: computation XOR seed. The rest: a stream that both decide.
void fill_layer(MutableByteView out, std::uint64_t seed, Computation computation) {
  store_le<std::uint64_t>(out.data(), computation ^ seed);
  Prng stream(seed ^ mix64(computation + 1));
  for (std::size_t at = 8; at < out.size(); at += 8) {
    std::byte word[8];
    store_le<std::uint64_t>(word, stream.next());
    std::copy_n(word, std::min<std::size_t>(8, out.size() - at),
                out.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace

std::uint64_t short_root(const Digest& root) { return load_le<std::uint64_t>(root.data()); }

std::vector<std::byte> make_payload(const ClassForm& cls, const RecordName& name, Computation computation) {
  std::vector<std::byte> payload(cls.record_bytes);
  for (const LayerRun& layer : cls.layers) {
    TIERCEL_CHECK(layer.length >= kLayerBytesMin);
    fill_layer(MutableByteView(payload).subspan(layer.offset, layer.length), layer_seed(name, layer.layer),
               computation);
  }
  return payload;
}

std::optional<Computation> read_layer(const LayerRun& layer, const RecordName& name, ByteView bytes) {
  const std::uint64_t seed = layer_seed(name, layer.layer);
  const Computation computation = load_le<std::uint64_t>(bytes.data()) ^ seed;
  std::vector<std::byte> wanted(bytes.size());
  fill_layer(wanted, seed, computation);
  if (!std::equal(bytes.begin(), bytes.end(), wanted.begin())) return std::nullopt;
  return computation;
}

std::vector<std::optional<Computation>> read_payload(const ClassForm& cls, const RecordName& name,
                                                     ByteView payload) {
  std::vector<std::optional<Computation>> layers;
  layers.reserve(cls.layers.size());
  for (const LayerRun& layer : cls.layers)
    layers.push_back(read_layer(layer, name, payload.subspan(layer.offset, layer.length)));
  return layers;
}

std::optional<Computation> whole_payload(const ClassForm& cls, const RecordName& name, ByteView payload) {
  const auto layers = read_payload(cls, name, payload);
  for (const auto& layer : layers)
    if (!layer || layer != layers.front()) return std::nullopt;
  return layers.front();
}

bool untouched(ByteView bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte each) { return each == kUntouched; });
}

}  // namespace tiercel::sim
