#include "encode/string_table.hpp"

#include <algorithm>
#include <utility>

namespace splinefm {
namespace {

// A kind of string in a slot, with what tells it from others: of strings of up to eight bytes, no two of the same size
// have the same hash, which is made by steps that can be undone. The text of longer ones is compared, too.
struct Kind {
    std::int32_t index;
    std::uint32_t size = 0;  // 9 for all that are longer
    std::uint64_t hash = 0;

    bool operator==(const Kind& other) const { return index == other.index; }
};

// Kinds of strings that were met, in a table that grows with their number: few kinds among many rows stay in the cache.
class Kinds {
public:
    explicit Kinds(Strings strings) : strings(strings), slots(1024) {}

    void add(std::int32_t i) {
        const String given = strings[i];
        const std::uint64_t value = hash(given);
        const auto size = static_cast<std::uint32_t>(std::min<std::int64_t>(given.size, 9));
        Kind& kind = slots.find(value, [&](const Kind& other) {
            return other.hash == value && other.size == size &&
                   (size <= 8 || same(strings[found.first[other.index]], given));
        });
        if (kind.index >= 0) {
            ++found.count[kind.index];
            return;
        }
        kind = {static_cast<std::int32_t>(found.first.size()), size, value};
        found.first.push_back(i);
        found.count.push_back(1);
        if (2 * found.first.size() > slots.size()) grow();
    }

    StringCounts found;

private:
    void grow() {
        HashSlots<Kind> larger(4 * slots.size());
        for (const Kind& kind : slots)
            if (kind.index >= 0) larger.free_slot(kind.hash) = kind;
        slots = std::move(larger);
    }

    Strings strings;
    HashSlots<Kind> slots;
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
    constexpr std::int64_t TOGETHER = 32;  // searches that wait for memory together
    std::uint64_t slot[TOGETHER];
    std::int32_t entry[TOGETHER];
    std::int64_t n_unknown = 0;
    for (std::int64_t begin = 0; begin < asked.n; begin += TOGETHER) {
        const std::int64_t n = std::min(TOGETHER, asked.n - begin);
        for (std::int64_t i = 0; i < n; ++i) slot[i] = fetch_slot(asked[begin + i]);
        for (std::int64_t i = 0; i < n; ++i) entry[i] = fetch_entry(slot[i]);
        for (std::int64_t i = 0; i < n; ++i)
            if (entry[i] >= 0) fetch_text(entry[i]);
        for (std::int64_t i = 0; i < n; ++i) {
            const String name = asked[begin + i];
            const std::int32_t at = entry[i] < 0 || is_at(entry[i], name) ? entry[i] : find(name);
            n_unknown += at < 0;
            out[(begin + i) * stride] = at < 0 ? unknown : first + at;
        }
    }
    return n_unknown;
}

StringCounts count_strings(Strings strings) {
    Kinds kinds(strings);
    for (std::int64_t i = 0; i < strings.n; ++i) kinds.add(static_cast<std::int32_t>(i));
    return std::move(kinds.found);
}

}  // namespace splinefm
