// Positions of known strings: a hash table with open addressing, at most half full.
//
// slots[hash & (size - 1)], or the next free one after it, holds the position of a string; -1 marks a free slot.
#pragma once

#include <cstdint>
#include <vector>

#include "encode/strings.hpp"

namespace splinefm {

class StringTable {
public:
    // The strings must live as long as the table; of equal ones the first is found. At most 2³⁰.
    explicit StringTable(Strings known);

    // The position of a string, or -1.
    std::int32_t find(String asked) const {
        std::uint64_t slot = hash(asked) & mask;
        std::int32_t at = slots[slot];
        while (at >= 0 && !same(asked, known[at])) {
            slot = (slot + 1) & mask;
            at = slots[slot];
        }
        return at;
    }

    // out[i * stride] = first + position of string i, or `unknown`; how many are not known.
    std::int64_t find(Strings asked, std::int32_t first, std::int32_t unknown, std::int32_t* out,
                      std::int64_t stride) const;

private:
    std::vector<std::int32_t> slots;
    Strings known;
    std::uint64_t mask;
};

// Equal strings: for each kind, in the order of first occurrence, the first of them and how many there are.
struct StringCounts {
    std::vector<std::int32_t> first;
    std::vector<std::int64_t> count;
};

StringCounts count_strings(Strings strings);

}  // namespace splinefm
