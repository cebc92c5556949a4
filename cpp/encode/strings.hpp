// Strings as Arrow keeps them, string i is the bytes text[offsets[i]] to text[offsets[i + 1] - 1]; their hash,
// equality.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace splinefm {

static_assert(std::endian::native == std::endian::little, "the first byte of a word is its lowest");

struct String {
    const char* bytes;
    std::int64_t size;
    const char* end;  // of the memory that may be read: the string, or more text behind it
};

struct Strings {
    const std::int64_t* offsets;  // n + 1, none smaller than the one before, all inside the text
    const char *text, *end;
    std::int64_t n;

    // Whether no offset is smaller than the one before, and all lie inside a text of `size` bytes.
    bool are_inside(std::int64_t size) const;

    String operator[](std::int64_t i) const { return {text + offsets[i], offsets[i + 1] - offsets[i], end}; }
};

inline std::uint64_t word_at(const char* bytes) {
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    return word;
}

// The last eight bytes of a string; all of a shorter one, and zeros. One load without a branch on the size, where text
// follows: names of one and of two letters in turns would have the processor guess wrong.
inline std::uint64_t last_word(String a) {
    if (a.size >= 8) return word_at(a.bytes + a.size - 8);
    if (a.end - a.bytes >= 8) return word_at(a.bytes) & ((std::uint64_t{1} << 8 * a.size) - 1);
    std::uint64_t word = 0;
    for (std::int64_t i = 0; i < a.size; ++i) word |= std::uint64_t{static_cast<unsigned char>(a.bytes[i])} << 8 * i;
    return word;
}

// Eight bytes at a time. Slots are numbered by the low bits: after every product the high bits, which depend on most of
// the string, are added to them.
inline std::uint64_t hash(String a) {
    const auto mix = [](std::uint64_t value) {
        value *= 0x9E3779B97F4A7C15u;
        return value ^ value >> 32;
    };
    std::uint64_t value = 0xCBF29CE484222325u ^ static_cast<std::uint64_t>(a.size);
    for (std::int64_t i = 0; i + 8 < a.size; i += 8) value = mix(value ^ word_at(a.bytes + i));
    return mix(mix(value ^ last_word(a)));
}

// Whether two strings are equal; shorter than a call of memcmp for names of a few letters.
inline bool same(String a, String b) {
    if (a.size != b.size) return false;
    for (std::int64_t i = 0; i + 8 < a.size; i += 8)
        if (word_at(a.bytes + i) != word_at(b.bytes + i)) return false;
    return last_word(a) == last_word(b);
}

}  // namespace splinefm
