// One name per category, however its value is spelled: the rules of splinefm.encode.tables.spelling, for one name at a
// time.
#pragma once

#include <string>
#include <string_view>

namespace splinefm {

// What the names of a field spell, in the order of VALUES in splinefm.encode.tables.spelling.
enum class Spelled { text, numbers, booleans, dates };

// Whether a name that spells a date is written otherwise than here: dates are compared as they are written, such as
// 2024-05-28 and 2024-05-28 13:30:00.5.
bool is_foreign_date(std::string_view name);

// The one name of a category; what does not spell such a value is left as it is. The result is the name, a part of it,
// or in the buffer.
std::string_view canonical(std::string_view name, Spelled spelled, std::string& buffer);

// A number as a name: integers without a decimal point, others as Arrow writes them. In the buffer.
std::string_view number_name(double x, std::string& buffer);

// Whether bytes are UTF-8: no other forms of a character than the shortest, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

// Without the white space of Unicode at both ends.
std::string_view trimmed(std::string_view text);

}  // namespace splinefm
