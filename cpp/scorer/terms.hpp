// An encoded row: terms, which are features with weights, and units, which are runs of terms whose vectors are summed.
//
// Term t is feature features[t] with weights[t]; unit u has terms ends[u] to ends[u + 1] - 1 and belongs to field
// unit_fields[u]. Units are in the order of their fields, and each has at least one term.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace splinefm {

// Whether a weight makes a term. One below the normal numbers does not: threads that flush those to zero and threads
// that do not must see the same terms.
inline bool makes_term(float weight) { return std::abs(weight) >= std::numeric_limits<float>::min(); }

struct Terms {
    // Capacity in terms; nothing is allocated later.
    explicit Terms(std::int64_t most) : features(most), unit_fields(most), ends(most + 1), weights(most) {}

    void clear() {
        n_terms = n_units = 0;
        has_offset = false;
    }

    void add(std::int64_t row, float weight) {
        features[n_terms] = static_cast<std::int32_t>(row);
        weights[n_terms++] = weight;
    }

    // Terms from `begin` on become one unit of a field, or one each. A weight of zero is no term: whether it is there
    // depends on how a row is encoded, and must not change the order of sums.
    void close(int field, std::int64_t begin, bool apart) {
        std::int64_t kept = keep_zeros ? n_terms : begin;
        for (std::int64_t t = kept; t < n_terms; ++t) {
            features[kept] = features[t];
            weights[kept] = weights[t];
            kept += makes_term(weights[t]);
        }
        n_terms = kept;
        while (begin < n_terms) {
            begin = apart ? begin + 1 : n_terms;
            close_at(field, begin);
        }
    }

    // Terms up to `end` that belong to no unit yet become one.
    void close_at(int field, std::int64_t end) {
        unit_fields[n_units++] = field;
        ends[n_units] = static_cast<std::int32_t>(end);
    }

    // Terms and units of another row.
    void append(const Terms& from, std::int64_t begin, std::int64_t end, std::int64_t first_unit,
                std::int64_t end_unit) {
        const std::int64_t shift = n_terms - begin;
        for (std::int64_t t = begin; t < end; ++t) {
            features[n_terms] = from.features[t];
            weights[n_terms++] = from.weights[t];
        }
        for (std::int64_t u = first_unit; u < end_unit; ++u) {
            unit_fields[n_units++] = from.unit_fields[u];
            ends[n_units] = static_cast<std::int32_t>(from.ends[u + 1] + shift);
        }
    }

    bool keep_zeros = false;  // to inspect the encoding
    bool has_offset = false;
    float offset = 0.0f;  // what is added to the score
    std::int64_t n_terms = 0, n_units = 0;
    std::vector<std::int32_t> features, unit_fields, ends;  // ends[0] is 0
    std::vector<float> weights;
};

}  // namespace splinefm
