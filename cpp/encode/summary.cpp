#include "encode/summary.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "encode/order.hpp"
#include "encode/sort.hpp"

namespace splinefm {
namespace {

// The values as integers of the same order, sorted; valid until this thread sorts others. Each thread reuses its
// memory: fresh memory costs a page fault every 4 kB.
const std::int64_t* sorted(const double* x, std::int64_t n) {
    static thread_local std::vector<std::int64_t> ordered, spare;
    const auto size = static_cast<std::size_t>(n);
    if (ordered.size() < size) ordered.resize(size);
    if (spare.size() < size) spare.resize(size);  // on its own: memory may run out between the two
    bool numbers = true;
    for (std::int64_t i = 0; i < n; ++i) {
        numbers &= x[i] == x[i];
        ordered[i] = order_of(x[i]);
    }
    if (!numbers) throw std::invalid_argument("x must not have NaN");
    sort_integers(ordered.data(), n, spare.data());
    return ordered.data();
}

std::int64_t count_distinct(const std::int64_t* x, std::int64_t n) {
    std::int64_t count = n > 0;
    for (std::int64_t i = 1; i < n; ++i) count += x[i] != x[i - 1];
    return count;
}

}  // namespace

Summary summarize(const double* given, std::int64_t n, std::int64_t capacity) {
    if (capacity < 2) throw std::invalid_argument("capacity must be at least 2, got " + std::to_string(capacity));
    if (n > std::numeric_limits<std::uint32_t>::max())
        throw std::invalid_argument("x must have fewer than 2**32 values");
    const std::int64_t* const x = sorted(given, n);
    const std::int64_t distinct = count_distinct(x, n), parts = std::max<std::int64_t>(capacity / 2 - 3, 1);
    const double rows = static_cast<double>(n), heavy = rows / static_cast<double>(capacity / 2);
    const double step = rows / static_cast<double>(parts);
    const bool keep_all = distinct <= capacity;
    Summary kept;
    for (auto* column : {&kept.value, &kept.below, &kept.at}) column->reserve(std::min(distinct, capacity));
    double target = 0.0;
    for (std::int64_t begin = 0, end; begin < n; begin = end) {
        end = begin + 1;
        while (end < n && x[end] == x[begin]) ++end;
        const double middle = 0.5 * static_cast<double>(begin + end), here = static_cast<double>(end - begin);
        if (keep_all || begin == 0 || end == n || here > heavy || middle >= target) {
            kept.value.push_back(number_of(x[begin]));
            kept.below.push_back(static_cast<double>(begin));
            kept.at.push_back(here);
            target = std::max(target, step * (std::floor(middle / step) + 1.0));
        }
    }
    return kept;
}

}  // namespace splinefm
