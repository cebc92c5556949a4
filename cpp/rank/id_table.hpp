// IdTable: rows by id, a hash table with open addressing.
//
// Ids are words of eight bytes, `width` for each row, in an array of the caller: the table holds only rows.
// An erased row leaves a tombstone in its slot, so that others are still found. The load is at most one half.
#pragma once

#include <cstdint>
#include <shared_mutex>

#include "hash_slots.hpp"

namespace splinefm {

struct Words {
    const std::uint64_t* data;  // (n, width)
    std::int64_t n, width;
};

// All functions throw std::out_of_range for a row that has no words. Threads may find at the same time.
class IdTable {
public:
    // Enters rows, and returns the first whose id was there already (it is not entered), or -1.
    std::int64_t insert(Words words, const std::int64_t* rows, std::int64_t n);

    // out[i] = the row whose id is words i of `wanted`, -1 where there is none; wanted.width must be words.width.
    void find(Words words, Words wanted, std::int64_t* out) const;

    // Removes rows.
    void erase(Words words, const std::int64_t* rows, std::int64_t n);

    // Rebuilds the table, for words that have become wider.
    void rebuild(Words words);

private:
    void check(Words words, const std::int64_t* rows, std::int64_t n) const;
    void resize(Words words, std::int64_t more);

    HashSlots<std::int64_t> slots{64};
    std::int64_t taken = 0;
    std::int64_t highest = -1;  // the largest row that was ever entered
    mutable std::shared_mutex mutex;
};

}  // namespace splinefm
