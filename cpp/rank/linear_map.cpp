#include "rank/linear_map.hpp"

#include <algorithm>

#include "scorer/checks.hpp"

namespace splinefm {
namespace {

constexpr std::int64_t MAX_SCALED = std::int64_t{1} << 28;  // numbers that blocks without a matrix make together

bool inside(std::int64_t first, std::int64_t n, std::int64_t size) {
    return first >= 0 && n >= 0 && n <= size && first <= size - n;
}

}  // namespace

LinearMap::LinearMap(std::span<const MapBlock> blocks, std::span<const double> weights, std::int64_t n_in,
                     std::int64_t n_out)
    : blocks(blocks), weights(weights), size_out(n_out) {
    const auto n_weights = static_cast<std::int64_t>(weights.size());
    check(n_in >= 0 && n_out >= 0, "sizes of a map must not be negative");
    // A small file must not take long: matrices share no weights, and other blocks, which may, have a limit.
    std::int64_t budget = n_weights, scaled = 0;
    for (const MapBlock& block : blocks) {
        check(inside(block.to, block.n_out, n_out) && block.n_in >= 0 &&
                  inside(block.from, block.n_in ? block.n_in : block.n_out, n_in),
              "a block of a map reaches beyond its vectors");
        check(block.n_in <= n_weights && (block.n_out == 0 || block.n_in <= n_weights / block.n_out) &&
                  inside(block.at, block.n_in ? block.n_in * block.n_out : 1, n_weights),
              "a block of a map reaches beyond its weights");
        budget -= block.n_in * block.n_out;
        check(budget >= 0, "blocks of a map share weights");
        if (!block.n_in) scaled += block.n_out;
        check(scaled <= MAX_SCALED, "blocks of a map make too many numbers");
    }
}

void LinearMap::operator()(const double* in, double* out) const {
    std::fill(out, out + size_out, 0.0);
    for (const MapBlock& block : blocks) {
        const std::int64_t n = block.n_out;
        double* const to = out + block.to;
        const double *const from = in + block.from, *weight = weights.data() + block.at;
        if (!block.n_in)
            for (std::int64_t j = 0; j < n; ++j) to[j] += weight[0] * from[j];
        for (std::int64_t i = 0; i < block.n_in; ++i, weight += n)
            for (std::int64_t j = 0; j < n; ++j) to[j] += from[i] * weight[j];
    }
}

}  // namespace splinefm
