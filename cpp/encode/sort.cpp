#include "encode/sort.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace splinefm {
namespace {

constexpr int DIGIT_BITS = 11;
constexpr std::uint64_t DIGIT = (1 << DIGIT_BITS) - 1;
constexpr std::int64_t FEW = 1024;  // for which counting digits does not pay

// The highest bits in which some integers differ, two digits of them.
struct Prefix {
    std::uint64_t least;
    int shift;

    std::uint64_t operator()(std::int64_t x) const { return (static_cast<std::uint64_t>(x) - least) >> shift; }
};

using Counts = std::array<std::uint32_t, DIGIT + 1>;

// Where the first of each digit goes, from how many there are of each.
void to_places(Counts& counts) {
    std::uint32_t at = 0;
    for (std::uint32_t& count : counts) at += std::exchange(count, at);
}

// Stable sort by the prefix: first by its low digit, then by its high digit.
void sort_by(Prefix prefix, std::int64_t* x, std::int64_t n, std::int64_t* spare) {
    Counts low{}, high{};
    for (std::int64_t i = 0; i < n; ++i) {
        const std::uint64_t digits = prefix(x[i]);
        ++low[digits & DIGIT];
        ++high[digits >> DIGIT_BITS];
    }
    to_places(low);
    to_places(high);
    for (std::int64_t i = 0; i < n; ++i) spare[low[prefix(x[i]) & DIGIT]++] = x[i];
    for (std::int64_t i = 0; i < n; ++i) x[high[prefix(spare[i]) >> DIGIT_BITS]++] = spare[i];
}

}  // namespace

void sort_integers(std::int64_t* x, std::int64_t n, std::int64_t* spare) {
    if (n < FEW) return std::sort(x, x + n);
    std::int64_t least = x[0], most = x[0];
    for (std::int64_t i = 1; i < n; ++i) {
        least = std::min(least, x[i]);
        most = std::max(most, x[i]);
    }
    const std::uint64_t span = static_cast<std::uint64_t>(most) - static_cast<std::uint64_t>(least);
    const int bits = std::bit_width(span), shift = std::max(0, bits - 2 * DIGIT_BITS);
    const Prefix prefix{static_cast<std::uint64_t>(least), shift};
    sort_by(prefix, x, n, spare);
    if (shift == 0) return;
    // Integers with the same prefix are left: most often few, otherwise their own prefixes have 22 bits more.
    for (std::int64_t begin = 0, end; begin < n; begin = end) {
        end = begin + 1;
        while (end < n && prefix(x[end]) == prefix(x[begin])) ++end;
        if (end - begin > 1) sort_integers(x + begin, end - begin, spare);
    }
}

}  // namespace splinefm
