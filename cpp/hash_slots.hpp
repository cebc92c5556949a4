// HashSlots: where a hash table with open addressing keeps indices of its entries, or indices and more beside them.
//
// An entry belongs to slot hash & (size - 1), or to the next free one after it. Entries, their hashes and when two are
// equal are the business of the table. It keeps the slots at most half full: a search ends at a free slot.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace splinefm {

// The slot of the entry that `is` accepts, or the free slot, -1, where the search ends. There must be a free one.
template <class Index, class Is>
std::uint64_t search_slots(const Index* slots, std::uint64_t mask, std::uint64_t hash, Is is) {
    std::uint64_t slot = hash & mask;
    while (slots[slot] != Index{-1} && !is(slots[slot])) slot = (slot + 1) & mask;
    return slot;
}

template <class Index> class HashSlots {
public:
    static constexpr Index FREE{-1};

    // The smallest number of slots, a power of two, of which n entries take less than 1 / `thin`.
    static std::uint64_t size_for(std::uint64_t n, std::uint64_t thin, std::uint64_t least) {
        return std::max(least, std::uint64_t{1} << std::bit_width(thin * n));
    }

    explicit HashSlots(std::uint64_t size) : slots(size, FREE), mask(size - 1) {}

    std::uint64_t size() const { return slots.size(); }
    const Index* data() const { return slots.data(); }
    auto begin() const { return slots.begin(); }
    auto end() const { return slots.end(); }

    // What is in the slot of the entry that `is` accepts, or the free slot where the search ends.
    template <class Is> Index find(std::uint64_t hash, Is is) const { return slots[search(hash, is)]; }
    template <class Is> Index& find(std::uint64_t hash, Is is) { return slots[search(hash, is)]; }

    // The free slot for an entry that is not there yet.
    Index& free_slot(std::uint64_t hash) {
        return find(hash, [](Index) { return false; });
    }

private:
    template <class Is> std::uint64_t search(std::uint64_t hash, Is is) const {
        return search_slots(slots.data(), mask, hash, is);
    }

    std::vector<Index> slots;
    std::uint64_t mask;
};

}  // namespace splinefm
