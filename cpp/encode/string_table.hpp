// Positions of known strings: a hash table with open addressing, at most half full.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "encode/strings.hpp"
#include "hash_slots.hpp"

namespace splinefm {

class StringTable {
public:
    // The strings must live as long as the table; of equal ones the first is found. At most 2³⁰.
    explicit StringTable(Strings known);
    // A table that was built before, such as a file's, which must live as long as this one: a power of two of
    // positions of strings, -1 in one of them at least.
    StringTable(Strings known, const std::int32_t* slots, std::uint64_t n_slots)
        : slots(slots), n_slots(n_slots), known(known) {}

    // The position of a string, or -1.
    std::int32_t find(String asked) const {
        return slots[search_slots(slots, n_slots - 1, hash(asked),
                                  [&](std::int32_t at) { return same(asked, known[at]); })];
    }

    // The same search in steps, each of which asks memory for what the next one reads: searches in several tables wait
    // together. The slot where it begins; the string that is there, or -1; its text.
    std::uint64_t fetch_slot(String asked) const {
        const std::uint64_t slot = hash(asked) & (n_slots - 1);
        __builtin_prefetch(slots + slot);
        return slot;
    }
    std::int32_t fetch_entry(std::uint64_t slot) const {
        if (slots[slot] >= 0) __builtin_prefetch(known.offsets + slots[slot]);
        return slots[slot];
    }
    bool is_at(std::int32_t at, String asked) const { return same(asked, known[at]); }
    void fetch_text(std::int32_t at) const { __builtin_prefetch(known.text + known.offsets[at]); }

    // out[i * stride] = first + position of string i, or `unknown`; how many are not known.
    std::int64_t find(Strings asked, std::int32_t first, std::int32_t unknown, std::int32_t* out,
                      std::int64_t stride) const;

    const std::int32_t* begin() const { return slots; }
    const std::int32_t* end() const { return slots + n_slots; }

private:
    std::shared_ptr<const HashSlots<std::int32_t>> built;  // copies of a table share what was built
    const std::int32_t* slots;
    std::uint64_t n_slots;
    Strings known;
};

// Equal strings: for each kind, in the order of first occurrence, the first of them and how many there are.
struct StringCounts {
    std::vector<std::int32_t> first;
    std::vector<std::int64_t> count;
};

StringCounts count_strings(Strings strings);

}  // namespace splinefm
