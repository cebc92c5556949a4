#include "rank/id_table.hpp"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

namespace splinefm {
namespace {

constexpr std::int64_t FREE = HashSlots<std::int64_t>::FREE, ERASED = -2;

std::uint64_t hash(const std::uint64_t* words, std::int64_t width) {
    std::uint64_t mixed = 0x9E3779B97F4A7C15;
    for (std::int64_t i = 0; i < width; ++i) {
        mixed = (mixed ^ words[i]) * 0xD6E8FEB86659FD93;
        mixed ^= mixed >> 32;
    }
    return mixed >> 1;
}

// Whether a row that is not erased has an id.
auto has(Words words, const std::uint64_t* id) {
    return [=](std::int64_t row) {
        return row != ERASED && std::equal(id, id + words.width, words.data + row * words.width);
    };
}

}  // namespace

std::int64_t IdTable::insert(Words words, const std::int64_t* rows, std::int64_t n) {
    const std::unique_lock lock(mutex);
    check(words, rows, n);
    if (2 * (taken + n) > static_cast<std::int64_t>(slots.size())) resize(words, n);
    std::int64_t repeated = -1;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::uint64_t* const id = words.data + rows[i] * words.width;
        std::int64_t& slot = slots.find(hash(id, words.width), has(words, id));
        if (slot == FREE) {
            slot = rows[i];
            highest = std::max(highest, rows[i]);
            ++taken;
        } else if (repeated < 0) {
            repeated = rows[i];
        }
    }
    return repeated;
}

void IdTable::find(Words words, Words wanted, std::int64_t* out) const {
    const std::shared_lock lock(mutex);
    check(words, nullptr, 0);
    if (wanted.width != words.width) throw std::invalid_argument("wanted must be as wide as words");
    for (std::int64_t i = 0; i < wanted.n; ++i) {
        const std::uint64_t* const id = wanted.data + i * wanted.width;
        out[i] = slots.find(hash(id, words.width), has(words, id));
    }
}

void IdTable::erase(Words words, const std::int64_t* rows, std::int64_t n) {
    const std::unique_lock lock(mutex);
    check(words, rows, n);
    for (std::int64_t i = 0; i < n; ++i) {
        const std::uint64_t value = hash(words.data + rows[i] * words.width, words.width);
        std::int64_t& slot = slots.find(value, [&](std::int64_t row) { return row == rows[i]; });
        if (slot != FREE) slot = ERASED;
    }
}

void IdTable::rebuild(Words words) {
    const std::unique_lock lock(mutex);
    check(words, nullptr, 0);
    resize(words, 0);
}

void IdTable::check(Words words, const std::int64_t* rows, std::int64_t n) const {
    if (highest >= words.n) throw std::out_of_range("words must reach as far as the rows of the table");
    for (std::int64_t i = 0; i < n; ++i)
        if (rows[i] < 0 || rows[i] >= words.n)
            throw std::out_of_range("row " + std::to_string(rows[i]) + " has no words: there are " +
                                    std::to_string(words.n));
}

// Grow to a capacity for the present rows and more, with a load from a sixth to a third.
void IdTable::resize(Words words, std::int64_t more) {
    const std::int64_t live = std::count_if(slots.begin(), slots.end(), [](std::int64_t row) { return row >= 0; });
    HashSlots<std::int64_t> wider(HashSlots<std::int64_t>::size_for(live + more, 3, 64));
    std::int64_t entered = 0;
    for (const std::int64_t row : slots) {
        if (row < 0) continue;
        const std::uint64_t* const id = words.data + row * words.width;
        std::int64_t& slot = wider.find(hash(id, words.width), has(words, id));
        entered += slot == FREE;
        if (slot == FREE) slot = row;
    }
    slots = std::move(wider);
    taken = entered;
}

}  // namespace splinefm
