#include "encode/string_table.hpp"

#include <bit>
#include <utility>

namespace splinefm {
namespace {

// Kinds of strings that were met, in a table that grows with their number: few kinds among many rows stay in the cache.
class Kinds {
public:
    explicit Kinds(Strings strings) : strings(strings), slots(1024, -1) {}

    void add(std::int32_t i) {
        const std::uint64_t value = hash(strings[i]);
        std::uint64_t slot = value & (slots.size() - 1);
        for (; slots[slot] >= 0; slot = (slot + 1) & (slots.size() - 1))
            if (is(slots[slot], value, i)) {
                ++found.count[slots[slot]];
                return;
            }
        slots[slot] = static_cast<std::int32_t>(found.first.size());
        found.first.push_back(i);
        found.count.push_back(1);
        hashes.push_back(value);
        if (2 * found.first.size() > slots.size()) grow();
    }

    StringCounts found;

private:
    bool is(std::int32_t kind, std::uint64_t value, std::int32_t i) const {
        return hashes[kind] == value && same(strings[found.first[kind]], strings[i]);
    }

    void grow() {
        slots.assign(4 * slots.size(), -1);
        for (std::size_t kind = 0; kind < hashes.size(); ++kind) {
            std::uint64_t slot = hashes[kind] & (slots.size() - 1);
            while (slots[slot] >= 0) slot = (slot + 1) & (slots.size() - 1);
            slots[slot] = static_cast<std::int32_t>(kind);
        }
    }

    Strings strings;
    std::vector<std::int32_t> slots;
    std::vector<std::uint64_t> hashes;
};

std::size_t table_size(std::int64_t n) {
    const int bits = std::bit_width(2 * static_cast<std::uint64_t>(n));
    return std::size_t{1} << (bits < 3 ? 3 : bits);
}

}  // namespace

bool Strings::are_inside(std::int64_t size) const {
    bool sound = offsets[0] >= 0 && offsets[n] <= size;
    for (std::int64_t i = 0; i < n; ++i) sound &= offsets[i] <= offsets[i + 1];
    return sound;
}

StringTable::StringTable(Strings known) : slots(table_size(known.n), -1), known(known), mask(slots.size() - 1) {
    for (std::int64_t i = 0; i < known.n; ++i) {
        std::uint64_t slot = hash(known[i]) & mask;
        while (slots[slot] >= 0) slot = (slot + 1) & mask;
        slots[slot] = static_cast<std::int32_t>(i);
    }
}

std::int64_t StringTable::find(Strings asked, std::int32_t first, std::int32_t unknown, std::int32_t* out,
                               std::int64_t stride) const {
    std::int64_t n_unknown = 0;
    for (std::int64_t i = 0; i < asked.n; ++i) {
        const std::int32_t at = find(asked[i]);
        n_unknown += at < 0;
        out[i * stride] = at < 0 ? unknown : first + at;
    }
    return n_unknown;
}

StringCounts count_strings(Strings strings) {
    Kinds kinds(strings);
    for (std::int64_t i = 0; i < strings.n; ++i) kinds.add(static_cast<std::int32_t>(i));
    return std::move(kinds.found);
}

}  // namespace splinefm
