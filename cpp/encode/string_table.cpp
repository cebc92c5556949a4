#include "encode/string_table.hpp"

#include <utility>

namespace splinefm {
namespace {

// Kinds of strings that were met, in a table that grows with their number: few kinds among many rows stay in the cache.
class Kinds {
public:
    explicit Kinds(Strings strings) : strings(strings), slots(1024) {}

    void add(std::int32_t i) {
        const String given = strings[i];
        const std::uint64_t value = hash(given);
        std::int32_t& kind = slots.find(
            value, [&](std::int32_t at) { return hashes[at] == value && same(strings[found.first[at]], given); });
        if (kind >= 0) {
            ++found.count[kind];
            return;
        }
        kind = static_cast<std::int32_t>(found.first.size());
        found.first.push_back(i);
        found.count.push_back(1);
        hashes.push_back(value);
        if (2 * found.first.size() > slots.size()) grow();
    }

    StringCounts found;

private:
    void grow() {
        slots = HashSlots<std::int32_t>(4 * slots.size());
        for (std::size_t kind = 0; kind < hashes.size(); ++kind)
            slots.free_slot(hashes[kind]) = static_cast<std::int32_t>(kind);
    }

    Strings strings;
    HashSlots<std::int32_t> slots;
    std::vector<std::uint64_t> hashes;
};

}  // namespace

bool Strings::are_inside(std::int64_t size) const {
    bool valid = offsets[0] >= 0 && offsets[n] <= size;
    for (std::int64_t i = 0; i < n; ++i) valid &= offsets[i] <= offsets[i + 1];
    return valid;
}

StringTable::StringTable(Strings known) : known(known) {
    const auto own = std::make_shared<HashSlots<std::int32_t>>(
        HashSlots<std::int32_t>::size_for(static_cast<std::uint64_t>(known.n), 2, 8));
    for (std::int64_t i = 0; i < known.n; ++i) own->free_slot(hash(known[i])) = static_cast<std::int32_t>(i);
    built = own;
    slots = own->data();
    n_slots = own->size();
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
