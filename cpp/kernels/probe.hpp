// Every operation of Vec<K> on two vectors, for the tests: K numbers each of
// a + b, a - b, a b, a / b, b₀ a, √a, |a|, max(a, b), then the sum of a.
#pragma once

#include "vec.hpp"

namespace splinefm::SPLINEFM_ISA {

template <int K> void probe_vec(const float* x, const float* y, float* out) {
    const Vec<K> a = load<K>(x), b = load<K>(y);
    const Vec<K> found[] = {a + b, a - b, a * b, a / b, y[0] * a, sqrt(a), abs(a), max(a, b)};
    for (const Vec<K>& one : found) {
        store(out, one);
        out += K;
    }
    *out = total(a);
}

inline bool probe(int k, const float* a, const float* b, float* out) {
    switch (k) {
    case 4: probe_vec<4>(a, b, out); return true;
    case 8: probe_vec<8>(a, b, out); return true;
    case 16: probe_vec<16>(a, b, out); return true;
    case 32: probe_vec<32>(a, b, out); return true;
    default: return false;
    }
}

}  // namespace splinefm::SPLINEFM_ISA
