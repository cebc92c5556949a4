#include "scorer/columns.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "encode/splines.hpp"

namespace splinefm {
namespace {

constexpr std::int64_t ROWS = 256;  // that are encoded together

// Writes the terms of rows into slots.
class Writer {
public:
    // `empty` are the terms of some row: where windows without weights start.
    Writer(const FieldSlots& slots, const Terms& empty) : slots(slots) {
        for (const std::int64_t width : slots.widths) {
            ptr.push_back(n_weights);
            n_weights += width;
        }
        for (const std::int64_t at : ptr) rest.push_back(empty.features[static_cast<std::size_t>(at)]);
    }

    void write(std::int64_t i, const Terms& terms) const {
        std::int32_t* const start = slots.start + i * slots.start_stride;
        float* const weight = slots.weight + i * slots.weight_stride;
        const std::int32_t* const features = terms.features.data();
        const std::int64_t n = terms.n_terms;
        for (std::size_t w = 0; w < ptr.size(); ++w) start[w] = ptr[w] < n ? features[ptr[w]] : rest[w];
        std::copy_n(terms.weights.data(), n, weight);
        std::fill(weight + n, weight + n_weights, 0.0f);
    }

private:
    const FieldSlots& slots;
    std::int64_t n_weights = 0;
    std::vector<std::int64_t> ptr;
    std::vector<std::int32_t> rest;
};

// Whether slots have a window for each window of a field, and all of those are uniform B-splines.
bool are_uniform(const NumberField& field, const FieldSlots& slots) {
    bool uniform = !field.pieces.knots.empty() && slots.widths.size() == field.windows.size() &&
                   field.end_feature() <= std::numeric_limits<std::int32_t>::max();
    for (std::size_t w = 0; uniform && w < field.windows.size(); ++w)
        uniform = field.windows[w].is_uniform() && slots.widths[w] == field.windows[w].functions;
    return uniform;
}

// Slots of n numbers from row `begin` on, all of them ordinary.
void encode_uniform(const NumberField& field, const double* x, std::int64_t begin, std::int64_t n, std::int64_t first,
                    const FieldSlots& slots) {
    double u[ROWS];
    field.pieces.evaluate(x, n, u);
    for (std::int64_t i = 0; i < n; ++i) u[i] = u[i] > 0.0 ? u[i] : 0.0;
    SplineSlots<float> out{slots.start + begin * slots.start_stride, slots.start_stride,
                           slots.weight + begin * slots.weight_stride, slots.weight_stride};
    for (const BasisWindow& window : field.windows) {
        uniform_splines(u, n, static_cast<std::int32_t>(window.segments), window.degree,
                        static_cast<std::int32_t>(first + window.start), out);
        ++out.start;
        out.weight += window.functions;
    }
}

}  // namespace

std::int64_t encode_numbers(const NumberField& field, const double* x, const FieldSlots& slots) {
    Terms terms(field.max_terms());
    const std::int64_t first = field.first + static_cast<std::int64_t>(field.rules.size()) + field.has_missing;
    for (const BasisWindow& window : field.windows) window.add_terms(0.0, first, terms);
    const Writer writer(slots, terms);
    const bool uniform = are_uniform(field, slots), has_tokens = !field.rules.empty() || field.limits.any();
    for (std::int64_t begin = 0; begin < slots.n; begin += ROWS) {
        const std::int64_t n = std::min(ROWS, slots.n - begin);
        bool ordinary[ROWS] = {}, all = uniform;
        if (uniform) {
            for (std::int64_t i = 0; i < n; ++i) {
                const double value = x[begin + i];
                ordinary[i] = has_tokens ? field.token(value) == NumberField::ORDINARY : std::isfinite(value);
                all &= ordinary[i];
            }
            // First as if all of them were ordinary.
            double inside[ROWS];
            for (std::int64_t i = 0; !all && i < n; ++i) inside[i] = ordinary[i] ? x[begin + i] : field.pieces.knots[0];
            encode_uniform(field, all ? x + begin : inside, begin, n, first, slots);
        }
        for (std::int64_t i = begin; !all && i < begin + n; ++i) {
            if (ordinary[i - begin]) continue;
            terms.clear();
            if (!field.add_terms(x[i], terms)) return i;
            writer.write(i, terms);
        }
    }
    return -1;
}

std::int64_t encode_products(const CrossField& field, const std::int32_t* cells, const double* const* x,
                             const FieldSlots& slots) {
    std::array<double, CrossField::MAX_PARTS> u{};
    std::array<const NumberField*, CrossField::MAX_PARTS> numbers{};
    std::size_t n_numbers = 0;
    for (const CrossPart& part : field.parts)
        if (const NumberField* const number = std::get_if<NumberField>(&part)) numbers[n_numbers++] = number;
    Terms terms(field.max_terms());
    field.add_terms(0, u.data(), terms);
    const Writer writer(slots, terms);
    for (std::int64_t i = 0; i < slots.n; ++i) {
        bool ordinary = true;
        for (std::size_t p = 0; p < n_numbers; ++p) {
            const std::int64_t token = numbers[p]->token(x[p][i]);
            if (token == NumberField::REFUSED) return i;
            ordinary &= token == NumberField::ORDINARY;
            u[p] = ordinary ? numbers[p]->position(x[p][i]) : 0.0;
        }
        terms.clear();
        if (ordinary && cells[i] >= 0) field.add_terms(cells[i], u.data(), terms);
        writer.write(i, terms);
    }
    return -1;
}

}  // namespace splinefm
