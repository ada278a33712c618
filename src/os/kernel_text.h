// The texts in which the kernel tells about itself (/proc, /sys), read and taken apart.
//
// Threads: pure functions, but for reading a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tiercel {

// Longer texts are cut here: none that is read with this comes near it.
inline constexpr std::size_t kKernelTextBytesMax = 4U << 20;

// Nothing when the file is not there or cannot be read.
std::optional<std::string> read_kernel_text(const std::string& path);

// Without blanks and newlines at both ends.
std::string_view trimmed(std::string_view text);

// The text before the first `end` (or all), which is cut off `rest` with the mark itself.
std::string_view take_until(std::string_view& rest, char end);

// Digits only, saturating; nothing for any other text.
std::optional<std::uint64_t> decimal(std::string_view text);

// What stands behind `name` at the start of a line ("Name:   some words", "name words"), trimmed; empty when
// there is no such line.
std::string_view line_after(std::string_view text, std::string_view name);

// The first word of line_after().
std::string_view word_after(std::string_view text, std::string_view name);

}  // namespace tiercel
