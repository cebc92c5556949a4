#include "rank/context.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "denormals.hpp"
#include "scorer/checks.hpp"

namespace splinefm {
namespace {

double* room(std::vector<double>& memory, std::int64_t size) {
    if (static_cast<std::int64_t>(memory.size()) < size) memory.resize(static_cast<std::size_t>(size));
    return memory.data();
}

// The interactions of units p_u of `width` numbers. Products are summed up coordinate by coordinate, and coordinates at
// the end: zeros that pad vectors do not change the order of sums.
class Interactions {
public:
    Interactions(const RowParams& params, const Terms& terms, const double* units, std::vector<double>& scratch)
        : params(params), fields(terms.unit_fields.data()), n(terms.n_units), units(units),
          sums(room(scratch, params.width * (params.model == Model::higher ? params.order + 1 : 3))),
          more(sums + params.width) {
        std::fill(sums, sums + params.width, 0.0);
    }

    double operator()() {
        switch (params.model) {
        case Model::fm: fm(); break;
        case Model::fmfm: fmfm(); break;
        case Model::ffm: ffm(); break;
        case Model::higher: higher(); break;
        case Model::low_rank:
        case Model::fwfm:
            fwfm();
            triples();
            break;
        }
        double total = 0.0;
        for (std::int64_t c = 0; c < params.width; ++c) total += sums[c];
        return total;
    }

private:
    const double* unit(std::int64_t u) const { return units + u * params.width; }

    // ½ (|Σ p|² - Σ |p|²)
    void fm() {
        double* const all = more;
        std::fill(all, all + params.k, 0.0);
        for (std::int64_t u = 0; u < n; ++u)
            for (std::int64_t c = 0; c < params.k; ++c) {
                const double p = unit(u)[c];
                all[c] += p;
                sums[c] -= p * p;
            }
        for (std::int64_t c = 0; c < params.k; ++c) sums[c] = 0.5 * (sums[c] + all[c] * all[c]);
    }

    // Σ_u p_u' Σ_{v<u} R_{f(u) f(v)} p_v
    void fwfm() {
        const std::int64_t part = params.k / params.members, n_fields = params.n_fields;
        double* const others = more;
        for (std::int64_t m = 0; m < params.members; ++m)
            for (std::int64_t u = 0; u < n; ++u) {
                const float* const R = params.between + (m * n_fields + fields[u]) * n_fields;
                const double* const p = unit(u) + m * part;
                std::fill(others, others + part, 0.0);
                for (std::int64_t v = 0; v < u; ++v) {
                    const double r = static_cast<double>(R[fields[v]]);
                    const double* const q = unit(v) + m * part;
                    for (std::int64_t c = 0; c < part; ++c) others[c] += r * q[c];
                }
                for (std::int64_t c = 0; c < part; ++c) sums[m * part + c] += p[c] * others[c];
            }
    }

    // Σ_{u<v<w} q_u q_v q_w of the numbers behind the first k
    void triples() {
        double *const ones = more, *const twos = more + params.width;
        std::fill(ones, twos + params.width, 0.0);
        for (std::int64_t u = 0; u < n; ++u)
            for (std::int64_t c = params.k; c < params.width; ++c) {
                const double q = unit(u)[c];
                sums[c] += q * twos[c];
                twos[c] += q * ones[c];
                ones[c] += q;
            }
    }

    // Σ_v (Σ_{u<v} p_u' M_{f(u) f(v)}) p_v; M is stored by its second field
    void fmfm() {
        const std::int64_t k = params.k;
        double* const others = more;
        for (std::int64_t v = 0; v < n; ++v) {
            std::fill(others, others + k, 0.0);
            for (std::int64_t u = 0; u < v; ++u) {
                const float* M = params.between + (fields[v] * params.n_fields + fields[u]) * k * k;
                for (std::int64_t i = 0; i < k; ++i, M += k)
                    for (std::int64_t c = 0; c < k; ++c) others[c] += unit(u)[i] * static_cast<double>(M[c]);
            }
            for (std::int64_t c = 0; c < k; ++c) sums[c] += unit(v)[c] * others[c];
        }
    }

    // Σ_{v<u} p_u[f(v)]' p_v[f(u)]
    void ffm() {
        const std::int64_t k = params.k;
        for (std::int64_t u = 0; u < n; ++u)
            for (std::int64_t v = 0; v < u; ++v) {
                const double *const p = unit(u) + fields[v] * k, *const q = unit(v) + fields[u] * k;
                for (std::int64_t c = 0; c < k; ++c) sums[c] += p[c] * q[c];
            }
    }

    // Σ_t A_t for t ≥ 2, where every unit adds p A_{t-1} to A_t; A_0 = 1. Divided by the members, whose mean it is.
    void higher() {
        const std::int64_t k = params.width;
        double* const A = more - k;  // A_1 is at `more`
        std::fill(more, more + params.order * k, 0.0);
        for (std::int64_t u = 0; u < n; ++u)
            for (std::int64_t t = params.order; t > 0; --t)
                for (std::int64_t c = 0; c < k; ++c) A[t * k + c] += unit(u)[c] * (t == 1 ? 1.0 : A[(t - 1) * k + c]);
        for (std::int64_t t = 2; t <= params.order; ++t)
            for (std::int64_t c = 0; c < k; ++c) sums[c] += A[t * k + c];
        for (std::int64_t c = 0; c < k; ++c) sums[c] /= static_cast<double>(params.members);
    }

    const RowParams& params;
    const std::int32_t* const fields;
    const std::int64_t n;
    const double* const units;
    double *const sums, *const more;
};

std::vector<std::int64_t> places_of(const std::vector<char>& of_context) {
    std::vector<std::int64_t> places(of_context.size());
    std::int64_t n = 0;
    for (std::size_t f = 0; f < of_context.size(); ++f) places[f] = of_context[f] ? n++ : -1;
    return places;
}

bool is_finite(double number) { return std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max()); }

}  // namespace

ContextSide::ContextSide(const RowParams& params, const std::vector<char>& of_context, std::int64_t products,
                         std::span<const MapBlock> blocks, std::span<const double> weights, std::int64_t length)
    : params(params), places(places_of(of_context)), n_own(std::count(of_context.begin(), of_context.end(), 1)),
      products(products), map(blocks, weights, (n_own + products) * params.width, length) {
    check(static_cast<std::int64_t>(of_context.size()) == params.n_fields && products >= 0 && products <= params.order,
          "fields and products do not match the model");
}

void ContextSide::sum_units(const Terms& terms, Workspace& work) const {
    const std::int64_t width = params.width;
    double* const units = room(work.units, terms.n_units * width);
    std::fill(units, units + terms.n_units * width, 0.0);
    for (std::int64_t u = 0; u < terms.n_units; ++u)
        for (std::int64_t t = terms.ends[u]; t < terms.ends[u + 1]; ++t) {
            const double weight = static_cast<double>(terms.weights[t]);
            const float* const from = params.factors + terms.features[t] * width;
            for (std::int64_t c = 0; c < width; ++c) units[u * width + c] += weight * static_cast<double>(from[c]);
        }
}

void ContextSide::sum_fields(const Terms& terms, Workspace& work) const {
    const std::int64_t width = params.width, size = (n_own + products) * width;
    double* const sums = room(work.sums, size);
    std::fill(sums, sums + size, 0.0);
    double* const symmetric = sums + n_own * width;
    for (std::int64_t u = 0; u < terms.n_units; ++u) {
        const double* const p = work.units.data() + u * width;
        double* const own = sums + places[static_cast<std::size_t>(terms.unit_fields[u])] * width;
        for (std::int64_t c = 0; c < width; ++c) own[c] += p[c];
        for (std::int64_t t = products; t > 0; --t) {
            double *const to = symmetric + (t - 1) * width, *const below = to - width;
            for (std::int64_t c = 0; c < width; ++c) to[c] += t == 1 ? p[c] : p[c] * below[c];
        }
    }
}

// Not inlined: see FlushDenormals.
[[gnu::noinline]] bool ContextSide::compute(const Terms& terms, Workspace& work, float* query, float* constant) const {
    sum_units(terms, work);
    sum_fields(terms, work);
    double* const out = room(work.out, length());
    map(work.sums.data(), out);
    bool finite = true;
    for (std::int64_t j = 0; j < length(); ++j) {
        finite &= is_finite(out[j]);
        query[j] = static_cast<float>(out[j]);
    }
    double score = params.bias;
    for (std::int64_t t = 0; t < terms.n_terms; ++t)
        score += static_cast<double>(terms.weights[t]) * static_cast<double>(params.linear[terms.features[t]]);
    score += Interactions(params, terms, work.units.data(), work.scratch)();
    *constant = static_cast<float>(score);
    return finite && is_finite(score);
}

bool ContextSide::operator()(const Terms& terms, Workspace& work, float* query, float* constant) const {
    const FlushDenormals flushed;  // whatever the mode of the thread is
    return compute(terms, work, query, constant);
}

void map_query(const LinearMap& map, const float* query, std::int64_t length, ContextSide::Workspace& work,
               float* out) {
    double *const in = room(work.scratch, length), *const result = room(work.out, map.n_out());
    std::copy(query, query + length, in);
    map(in, result);
    for (std::int64_t j = 0; j < map.n_out(); ++j) out[j] = static_cast<float>(result[j]);
}

}  // namespace splinefm
