#include "trace/generator.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/prng.h"

namespace tiercel {
namespace {

// Values at rising shares of a distribution (in thousandths); straight lines between them. Whole numbers
// only, so that every machine draws the same.
struct Quantile {
  std::uint64_t share;
  std::uint64_t value;
};

std::uint64_t draw(Prng& prng, std::span<const Quantile> table) {
  constexpr std::uint64_t kFine = 1000;
  const std::uint64_t at = prng.below(table.back().share * kFine);
  std::size_t i = 1;
  while (table[i].share * kFine <= at) ++i;
  const std::uint64_t first = table[i - 1].share * kFine;
  const std::uint64_t width = table[i].share * kFine - first;
  return table[i - 1].value + (table[i].value - table[i - 1].value) * (at - first) / width;
}

bool per_mille(Prng& prng, std::uint64_t share) { return prng.below(1000) < share; }

// ---- conversation ----

constexpr std::uint64_t kTickMs = 3000;         // arrivals come in ticks
constexpr std::uint64_t kSlotsPerTick = 64;     // each taken with the chance below
constexpr std::uint64_t kSlotPerMille = 159;    // 10.2 a tick, 3.4 a second
constexpr std::uint64_t kContextMax = 131'072;  // no prompt grows beyond it

// Tokens of a conversation's first prompt: those that stay alone, and those that go on.
constexpr Quantile kAloneTokens[] = {{0, 891},     {200, 930},   {300, 1261},   {400, 2856},  {500, 4721},
                                     {600, 6509},  {700, 9735},  {800, 15212},  {900, 25690}, {950, 40327},
                                     {980, 69645}, {990, 94410}, {1000, 126195}};
constexpr Quantile kFirstTokens[] = {{0, 892},     {100, 1060},  {200, 1500},  {300, 2600},   {400, 3900},
                                     {500, 5400},  {600, 7300},  {700, 10000}, {800, 14000},  {900, 20500},
                                     {950, 27000}, {980, 42000}, {990, 60000}, {1000, 110000}};
// Tokens by which the next turn's prompt is longer (answer and question).
constexpr Quantile kGrowthTokens[] = {{0, 1},      {50, 42},    {100, 94},    {200, 227},   {300, 333},
                                      {400, 408},  {500, 480},  {600, 565},   {700, 703},   {800, 1419},
                                      {900, 4645}, {950, 7464}, {980, 12237}, {990, 17472}, {1000, 36000}};
constexpr Quantile kLaterGrowthTokens[] = {
    {0, 1},     {50, 42},   {100, 94},   {200, 200},  {300, 290},  {400, 370},   {500, 440},   {600, 520},
    {700, 620}, {800, 980}, {900, 2400}, {950, 4200}, {980, 7500}, {990, 11000}, {1000, 24000}};
constexpr Quantile kPauseMs[] = {{0, 3000},     {100, 42000},   {200, 60000},   {300, 75000},   {400, 96000},
                                 {500, 123000}, {600, 162000},  {700, 222000},  {800, 318000},  {900, 510000},
                                 {950, 680000}, {980, 1200000}, {990, 1800000}, {1000, 3200000}};
// An edited prompt keeps this share of the one before (in thousandths) and has so many tokens in all.
constexpr Quantile kEditKept[] = {{0, 15},    {100, 68},  {200, 97},  {300, 129}, {400, 150}, {500, 180},
                                  {600, 230}, {700, 320}, {800, 450}, {900, 750}, {1000, 980}};
constexpr Quantile kEditTokens[] = {{0, 1500},    {100, 7100},  {200, 9600},  {300, 11700},
                                    {400, 12700}, {500, 15200}, {600, 16800}, {700, 19400},
                                    {800, 24000}, {900, 30200}, {950, 39400}, {1000, 75000}};
constexpr Quantile kAnswerTokens[] = {{0, 1},     {100, 24},  {250, 156},  {500, 350},  {750, 472},
                                      {900, 597}, {950, 698}, {990, 1120}, {1000, 2000}};
constexpr std::uint64_t kEditPerMille = 200;  // of the turns after the first
constexpr std::uint64_t kRetryPerMille = 26;
// Chance of another turn after the first, second, …
constexpr std::array<std::uint64_t, 8> kGoesOnPerMille = {345, 480, 560, 650, 690, 740, 780, 800};

struct Conversation {
  std::uint64_t turn = 0;
  std::uint64_t tokens = 0;                // of the last prompt
  std::vector<std::uint64_t> blocks = {};  // of the last prompt
};
struct NextTurn {
  std::uint64_t tick = 0;
  std::uint64_t order = 0;  // of scheduling: ties keep it
  std::size_t conversation = 0;
  friend bool operator>(const NextTurn& a, const NextTurn& b) {
    return std::pair(a.tick, a.order) > std::pair(b.tick, b.order);
  }
};

class ConversationGenerator final {
 public:
  explicit ConversationGenerator(const GeneratorSpec& spec) : wanted_(spec.requests), prng_(spec.seed) {}

  std::vector<TraceRequest> run() {
    for (tick_ = 0; made_.size() < wanted_; ++tick_) {
      std::uint64_t arrivals = 0;
      for (std::uint64_t slot = 0; slot < kSlotsPerTick; ++slot)
        arrivals += per_mille(prng_, kSlotPerMille) ? 1 : 0;
      for (; arrivals > 0 && made_.size() < wanted_; --arrivals) arrive();
    }
    return std::move(made_);
  }

 private:
  void arrive() {
    if (waiting_.empty() || waiting_.top().tick > tick_) {
      conversations_.emplace_back();
      begin(conversations_.size() - 1);
      return;
    }
    const std::size_t index = waiting_.top().conversation;
    waiting_.pop();
    Conversation& conversation = conversations_[index];
    const std::uint64_t kind = prng_.below(1000);
    if (kind < kRetryPerMille)
      ask(conversation, conversation.tokens, conversation.blocks.size());
    else if (kind < kRetryPerMille + kEditPerMille)
      edit(conversation);
    else
      grow(conversation);
    ++conversation.turn;
    const std::uint64_t last = kGoesOnPerMille.size() - 1;
    wait_or_end(index, per_mille(prng_, kGoesOnPerMille[std::min(conversation.turn, last)]));
  }
  void begin(std::size_t index) {
    const bool goes_on = per_mille(prng_, kGoesOnPerMille[0]);
    ask(conversations_[index], goes_on ? draw(prng_, kFirstTokens) : draw(prng_, kAloneTokens), 0);
    wait_or_end(index, goes_on);
  }
  void grow(Conversation& conversation) {
    const std::uint64_t more =
        conversation.turn == 0 ? draw(prng_, kGrowthTokens) : draw(prng_, kLaterGrowthTokens);
    ask(conversation, std::min(conversation.tokens + more, kContextMax),
        conversation.tokens / kTraceBlockTokens);
  }
  void edit(Conversation& conversation) {
    const std::uint64_t kept =
        std::max<std::uint64_t>(1, conversation.blocks.size() * draw(prng_, kEditKept) / 1000);
    const std::uint64_t tokens = std::max(draw(prng_, kEditTokens), kept * kTraceBlockTokens + 1);
    ask(conversation, tokens, std::min(kept, conversation.tokens / kTraceBlockTokens));
  }
  // A prompt of `tokens` that begins with the first `kept` blocks of the one before.
  void ask(Conversation& conversation, std::uint64_t tokens, std::uint64_t kept) {
    conversation.tokens = tokens;
    conversation.blocks.resize(kept);
    if (conversation.blocks.empty()) conversation.blocks.push_back(0);  // the first block is everybody's
    while (conversation.blocks.size() < ceil_div(tokens, kTraceBlockTokens))
      conversation.blocks.push_back(next_block_++);
    made_.push_back({tick_ * kTickMs, tokens, draw(prng_, kAnswerTokens), conversation.blocks});
  }
  void wait_or_end(std::size_t index, bool goes_on) {
    if (goes_on)
      waiting_.push({tick_ + std::max<std::uint64_t>(1, draw(prng_, kPauseMs) / kTickMs), order_++, index});
    else
      conversations_[index] = {};
  }

  std::uint64_t wanted_;
  Prng prng_;
  std::uint64_t tick_ = 0;
  std::uint64_t order_ = 0;
  std::uint64_t next_block_ = 1;
  std::vector<Conversation> conversations_;
  std::priority_queue<NextTurn, std::vector<NextTurn>, std::greater<>> waiting_;
  std::vector<TraceRequest> made_;
};

// ---- synthetic ----

constexpr std::uint64_t kMeanGapUs = 255'954;
constexpr std::uint64_t kDuration =
    1'000'000'000'000;                        // in units of nothing: where in the trace a prompt stands
constexpr std::uint64_t kOncePerMille = 452;  // of all requests: seen once, nothing shared
constexpr std::uint64_t kSameQuestionPerMille = 120;

constexpr Quantile kOnceTokens[] = {{0, 13},      {100, 22},    {200, 30},    {300, 41},     {400, 74},
                                    {500, 169},   {600, 700},   {700, 4800},  {800, 16500},  {900, 19625},
                                    {950, 24429}, {980, 34817}, {990, 41155}, {1000, 134773}};
constexpr Quantile kDocumentTokens[] = {{0, 13},      {50, 783},    {100, 2943},   {200, 5824},
                                        {300, 13772}, {400, 16721}, {500, 19506},  {600, 25679},
                                        {700, 31598}, {800, 37147}, {900, 44005},  {950, 52934},
                                        {980, 57529}, {990, 66454}, {1000, 100000}};
constexpr Quantile kQuestionTokens[] = {{0, 8},     {500, 18},  {800, 60},   {900, 300},
                                        {950, 440}, {980, 800}, {1000, 1800}};
constexpr Quantile kQuestions[] = {{0, 2},   {120, 2}, {180, 3},  {350, 4},  {500, 5},  {600, 6},
                                   {700, 7}, {800, 8}, {900, 10}, {950, 13}, {980, 17}, {1000, 25}};
constexpr Quantile kReplyTokens[] = {{0, 1},     {250, 11},  {500, 69},  {750, 250},
                                     {900, 389}, {950, 519}, {1000, 893}};

struct Document {
  std::uint64_t tokens = 0;
  std::vector<std::uint64_t> asked = {};   // tokens of its distinct prompts
  std::vector<std::uint64_t> shared = {};  // ids of its whole blocks, once seen
  std::vector<std::vector<std::uint64_t>> own =
      {};  // ids beyond the shared ones, per distinct prompt, once seen
};
struct Asking {
  std::uint64_t position = 0;  // only the order counts
  std::size_t document = 0;
  std::size_t prompt = 0;
};

class SyntheticGenerator final {
 public:
  explicit SyntheticGenerator(const GeneratorSpec& spec) : wanted_(spec.requests), prng_(spec.seed) {}

  std::vector<TraceRequest> run() {
    for (std::uint64_t once = wanted_ * kOncePerMille / 1000; once > 0; --once)
      add(draw(prng_, kOnceTokens), 1);
    while (askings_.size() < wanted_)
      add(draw(prng_, kDocumentTokens),
          std::min<std::uint64_t>(draw(prng_, kQuestions), wanted_ - askings_.size()));
    std::sort(askings_.begin(), askings_.end(),
              [](const Asking& a, const Asking& b) { return a.position < b.position; });

    // As many independent arrivals in a stretch of time as a Poisson process had.
    std::vector<std::uint64_t> times(wanted_);
    for (std::uint64_t& time : times) time = prng_.below(wanted_ * kMeanGapUs) / 1000;
    std::sort(times.begin(), times.end());
    std::vector<TraceRequest> made;
    for (std::size_t i = 0; i < askings_.size(); ++i) made.push_back(ask(askings_[i], times[i]));
    return made;
  }

 private:
  void add(std::uint64_t tokens, std::uint64_t questions) {
    Document& document = documents_.emplace_back();
    document.tokens = tokens;
    const std::uint64_t width = questions == 1 ? 0 : prng_.between(kDuration / 10, kDuration);
    const std::uint64_t start = prng_.below(kDuration - width + 1);
    for (std::uint64_t question = 0; question < questions; ++question) {
      std::size_t prompt = document.asked.size();
      if (prompt > 0 && per_mille(prng_, kSameQuestionPerMille))
        prompt = prng_.below(prompt);
      else
        document.asked.push_back(tokens + draw(prng_, kQuestionTokens));
      askings_.push_back({start + prng_.below(width + 1), documents_.size() - 1, prompt});
    }
    document.own.resize(document.asked.size());
  }
  TraceRequest ask(const Asking& asking, std::uint64_t time) {
    Document& document = documents_[asking.document];
    const std::uint64_t tokens = document.asked[asking.prompt];
    while (document.shared.size() < document.tokens / kTraceBlockTokens)
      document.shared.push_back(next_block_++);
    auto& own = document.own[asking.prompt];
    while (document.shared.size() + own.size() < ceil_div(tokens, kTraceBlockTokens))
      own.push_back(next_block_++);
    TraceRequest request{time, tokens, draw(prng_, kReplyTokens), document.shared};
    request.blocks.insert(request.blocks.end(), own.begin(), own.end());
    return request;
  }

  std::uint64_t wanted_;
  Prng prng_;
  std::uint64_t next_block_ = 0;
  std::vector<Document> documents_;
  std::vector<Asking> askings_;
};

constexpr std::uint64_t default_requests(TraceKind kind) {
  return kind == TraceKind::kConversation ? 12'031 : 3'993;
}
constexpr std::string_view kind_text(TraceKind kind) {
  return kind == TraceKind::kConversation ? "conversation" : "synthetic";
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

Result<GeneratorSpec> parse_generator(std::string_view text) {
  const auto refuse = [&](std::string_view what) {
    return error(
        Code::kInvalidArgument,
        fmt::format("--generate '{}': {}; wanted conversation|synthetic[:REQUESTS[:SEED]]", text, what));
  };
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;;) {
    const auto colon = rest.find(':');
    parts.push_back(rest.substr(0, colon));
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  if (parts.size() > 3) return refuse("too many parts");
  GeneratorSpec spec;
  if (parts[0] == kind_text(TraceKind::kSynthetic))
    spec.kind = TraceKind::kSynthetic;
  else if (parts[0] != kind_text(TraceKind::kConversation))
    return refuse("no such kind");
  spec.requests = default_requests(spec.kind);
  if (parts.size() > 1) {
    const auto requests = parse_number(parts[1]);
    if (!requests || *requests == 0 || *requests > kGeneratedRequestsMax)
      return refuse(fmt::format("REQUESTS must be a whole number from 1 to {}", kGeneratedRequestsMax));
    spec.requests = *requests;
  }
  if (parts.size() > 2) {
    const auto seed = parse_number(parts[2]);
    if (!seed) return refuse("SEED must be a whole number from 0");
    spec.seed = *seed;
  }
  return spec;
}

std::string generator_text(const GeneratorSpec& spec) {
  return fmt::format("{}:{}:{}", kind_text(spec.kind), spec.requests, spec.seed);
}

Trace generate(const GeneratorSpec& spec) {
  TIERCEL_CHECK(spec.requests <= kGeneratedRequestsMax);
  Trace trace;
  trace.requests = spec.kind == TraceKind::kConversation ? ConversationGenerator(spec).run()
                                                         : SyntheticGenerator(spec).run();
  return trace;
}

}  // namespace tiercel
