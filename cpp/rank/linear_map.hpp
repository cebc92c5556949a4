// A linear map in blocks: what becomes of the sums of a context's vectors before they meet items.
#pragma once

#include <cstdint>
#include <span>

namespace splinefm {

// out[to + j] += weights[at] in[from + j] for j < n_out, where n_in is 0; otherwise out[to + j] += Σ_i in[from + i]
// weights[at + i n_out + j].
struct MapBlock {
    std::int64_t to, from, n_out, n_in, at;
};

// Views, which must outlive it.
class LinearMap {
public:
    // Throws std::invalid_argument where a block reaches beyond one of the sizes.
    LinearMap(std::span<const MapBlock> blocks, std::span<const double> weights, std::int64_t n_in, std::int64_t n_out);

    std::int64_t n_out() const { return size_out; }
    void operator()(const double* in, double* out) const;

private:
    std::span<const MapBlock> blocks;
    std::span<const double> weights;
    std::int64_t size_out;
};

}  // namespace splinefm
