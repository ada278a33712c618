#include "llama_manual.h"

#include <array>
#include <iterator>

#include <fmt/format.h>

namespace tiercel::apps {
namespace {

struct Part {
  const char *name, *task, *sign, *remedy;
};

constexpr Part kParts[] = {
    {"intake filter", "keeps dust and insects out of the air channel",
     "the fan becomes loud and the room warms up slowly",
     "pull the grey handle, knock the filter clean, and put it back with the arrow pointing inwards"},
    {"drain pump", "lifts the water of the defrosting tray into the drain",
     "water stands in the tray under the left door",
     "close the blue valve, open the pump with a 10 mm key, and rinse the wheel under warm water"},
    {"door seal", "keeps moist air out when the doors are shut", "ice grows along the frame",
     "warm the seal with a hand dryer until it is soft, press it into its groove, and leave the door shut "
     "for an hour"},
    {"main fan", "moves air over the coil and around the shelves",
     "the shelves at the back are colder than those at the front",
     "switch the unit off, wait until the blades stand still, and clear away what blocks them"},
    {"coil sensor", "tells the controller how cold the coil is", "the unit defrosts again and again",
     "unplug the white lead, dry both ends, and plug it in until it clicks"},
    {"room sensor", "measures the air between the second and the third shelf",
     "the display shows three dashes",
     "hang the sensor back on its hook, away from the light and from boxes"},
    {"pressure switch", "stops the compressor when the pressure is too high",
     "the compressor starts and stops within a minute",
     "brush the outer coil from top to bottom and let the unit rest for half an hour before it is started "
     "again"},
    {"defrost heater", "melts the ice on the coil twice a day",
     "ice is still on the coil when the cycle has ended",
     "measure the heater at its plug; below 40 ohms it is good, above it has to be changed"},
    {"humidity valve", "lets a little outer air in when the room is too dry",
     "leaves and flowers wilt although the room is cold",
     "turn the valve once through its whole range by hand, and set it to the middle"},
    {"night blind", "covers the glass when the shop is closed", "the blind stops half way",
     "push it up evenly with both hands and free the cord on the right side"},
    {"lamp driver", "feeds the lamps over the shelves", "single lamps flicker",
     "swap the lamp with its neighbour; if the flicker stays in its place, change the driver"},
    {"backup battery", "keeps the clock and the records for ten days without mains",
     "the clock is wrong in the morning",
     "open the flap beside the display and put in a new battery of the same kind within two minutes"},
    {"data port", "gives the records of the last ninety days to a computer", "the computer finds no device",
     "use the short lead of the delivery, and unlock the port in the menu under Service"},
    {"outer coil", "gives the heat of the room to the outer air", "the upper casing is too hot to touch",
     "keep half a metre of free space on all sides and brush the fins once a season"},
};

// The sentences of the section with this number, from 0 on.
std::vector<std::string> section(std::size_t number) {
  const Part& part = kParts[number % std::size(kParts)];
  const std::size_t round = number / std::size(kParts);
  const std::string name = round == 0 ? part.name : fmt::format("{} of cell {}", part.name, round + 1);
  const std::size_t days = 7 + number * 5 % 23, months = 3 + number * 7 % 19;
  return {
      fmt::format("\n\nSection {}: the {}.", number + 1, name),
      fmt::format("The {} {}.", name, part.task),
      fmt::format("Look at it every {} days, and change it after {} months even if it still works.", days,
                  months),
      fmt::format("When {}, or when the display shows code E{}, the {} needs attention.", part.sign,
                  number + 11, name),
      fmt::format("First {}.", part.remedy),
      fmt::format("Then hold the RESET button for {} seconds; the green lamp must come on within a minute.",
                  3 + number % 4),
      fmt::format("If the code comes back within {} hours, order spare part {}-{:03} and call the service.",
                  2 + number % 5, 4100 + number * 17 % 800, number * 37 % 1000),
  };
}

std::string text_of(const std::string& title, const std::vector<std::string>& sentences, std::size_t count) {
  std::string text =
      title +
      " You are the help desk for the Fjell 40, a cold room for flower shops. Answer from this manual, "
      "in one or two sentences.";
  for (std::size_t i = 0; i < count; ++i) text += (sentences[i].front() == '\n' ? "" : " ") + sentences[i];
  return text;
}

}  // namespace

const char* const kFirstQuestion = "What does the intake filter do?";
const char* const kOtherQuestion = "What does the drain pump do?";

LlamaResult<std::string> make_manual(const LlamaModel& model, const std::string& title, std::uint32_t tokens,
                                     const std::string& question) {
  std::vector<std::string> sentences;
  const auto length_of = [&](std::size_t count) -> LlamaResult<std::size_t> {
    const std::array<ChatMessage, 2> messages{ChatMessage{"system", text_of(title, sentences, count)},
                                              ChatMessage{"user", question}};
    const auto prompt = model.tokenize(messages);
    if (!prompt) return tl::unexpected(prompt.error());
    return prompt->size();
  };
  // As many sections as there have to be at the least, then the longest that fits.
  std::size_t longest = 0;
  while (longest <= tokens) {
    for (int i = 0; i < 8; ++i)
      for (std::string& sentence : section(sentences.size() / section(0).size()))
        sentences.push_back(std::move(sentence));
    const auto length = length_of(sentences.size());
    if (!length) return tl::unexpected(length.error());
    longest = *length;
  }
  std::size_t fits = 0, too_long = sentences.size();
  while (fits + 1 < too_long) {
    const std::size_t middle = (fits + too_long) / 2;
    (length_of(middle).value_or(tokens + 1) <= tokens ? fits : too_long) = middle;
  }
  return text_of(title, sentences, fits);
}

}  // namespace tiercel::apps
