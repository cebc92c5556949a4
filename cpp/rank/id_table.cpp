#include "rank/id_table.hpp"

#include <algorithm>
#include <bit>
#include <mutex>
#include <stdexcept>
#include <string>

namespace splinefm {
namespace {

constexpr std::int64_t EMPTY = -1, ERASED = -2;

std::uint64_t hash(const std::uint64_t* words, std::int64_t width) {
    std::uint64_t mixed = 0x9E3779B97F4A7C15;
    for (std::int64_t i = 0; i < width; ++i) {
        mixed = (mixed ^ words[i]) * 0xD6E8FEB86659FD93;
        mixed ^= mixed >> 32;
    }
    return mixed >> 1;
}

// The bucket of an id, or the empty one where it would be.
std::size_t look_up(const std::vector<std::int64_t>& buckets, Words words, const std::uint64_t* id) {
    const std::size_t mask = buckets.size() - 1;
    std::size_t at = hash(id, words.width) & mask;
    while (buckets[at] != EMPTY &&
           (buckets[at] == ERASED || !std::equal(id, id + words.width, words.data + buckets[at] * words.width)))
        at = (at + 1) & mask;
    return at;
}

}  // namespace

std::int64_t IdTable::insert(Words words, const std::int64_t* rows, std::int64_t n) {
    const std::unique_lock lock(mutex);
    check(words, rows, n);
    if (2 * (taken + n) > static_cast<std::int64_t>(buckets.size())) resize(words, n);
    std::int64_t repeated = -1;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::size_t at = look_up(buckets, words, words.data + rows[i] * words.width);
        if (buckets[at] == EMPTY) {
            buckets[at] = rows[i];
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
    for (std::int64_t i = 0; i < wanted.n; ++i)
        out[i] = buckets[look_up(buckets, words, wanted.data + i * wanted.width)];
}

void IdTable::erase(Words words, const std::int64_t* rows, std::int64_t n) {
    const std::unique_lock lock(mutex);
    check(words, rows, n);
    const std::size_t mask = buckets.size() - 1;
    for (std::int64_t i = 0; i < n; ++i) {
        std::size_t at = hash(words.data + rows[i] * words.width, words.width) & mask;
        while (buckets[at] != rows[i] && buckets[at] != EMPTY) at = (at + 1) & mask;
        if (buckets[at] == rows[i]) buckets[at] = ERASED;
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
    const std::int64_t live = std::count_if(buckets.begin(), buckets.end(), [](std::int64_t row) { return row >= 0; });
    const auto size = std::max<std::uint64_t>(64, std::uint64_t{1} << std::bit_width<std::uint64_t>(3 * (live + more)));
    std::vector<std::int64_t> wider(size, EMPTY);
    std::int64_t entered = 0;
    for (const std::int64_t row : buckets) {
        if (row < 0) continue;
        std::int64_t& bucket = wider[look_up(wider, words, words.data + row * words.width)];
        entered += bucket == EMPTY;
        if (bucket == EMPTY) bucket = row;
    }
    buckets = std::move(wider);
    taken = entered;
}

}  // namespace splinefm
