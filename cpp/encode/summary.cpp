#include "encode/summary.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace splinefm {
namespace {

std::int64_t count_distinct(const double* x, std::int64_t n) {
    std::int64_t count = n > 0;
    bool sorted = true;
    for (std::int64_t i = 1; i < n; ++i) {
        count += x[i] != x[i - 1];
        sorted &= x[i] >= x[i - 1];
    }
    if (!sorted) throw std::invalid_argument("x must be sorted, without NaN");
    return count;
}

}  // namespace

Summary summarize_sorted(const double* x, std::int64_t n, std::int64_t capacity) {
    if (capacity < 2) throw std::invalid_argument("capacity must be at least 2, got " + std::to_string(capacity));
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
            kept.value.push_back(x[begin]);
            kept.below.push_back(static_cast<double>(begin));
            kept.at.push_back(here);
            target = std::max(target, step * (std::floor(middle / step) + 1.0));
        }
    }
    return kept;
}

}  // namespace splinefm
