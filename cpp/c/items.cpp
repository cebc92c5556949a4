#include "c/items.hpp"

#include <algorithm>
#include <limits>

#include "splinefm.h"

namespace splinefm::c {
Items::Items(const Plan& plan, const std::vector<char>& of_item, std::int64_t n)
    : params(plan.outputs.front().params), of_items(plan.fields.size()), n(n) {
    const auto refuse = [](const std::string& message) { throw Problem(SFM_ERROR_ARGUMENT, message); };
    if (plan.outputs.size() > 1) refuse("a model of several classes ranks no items; export the model of one class");
    if (params.model == Model::higher)
        refuse("products of more than two fields have no vectors of items here; use sfm_score_items");
    third = params.model == Model::fwfm ? params.width - params.k : 0;
    for (std::size_t f = 0; f < plan.fields.size(); ++f) {
        const std::vector<std::int64_t>& columns = plan.fields[f].columns;
        const auto count = std::count_if(columns.begin(), columns.end(), [&](std::int64_t column) {
            return of_item[static_cast<std::size_t>(column)] != 0;
        });
        of_items[f] = count > 0;
        if (count && count < static_cast<std::ptrdiff_t>(columns.size()))
            refuse("the cross '" + plan.fields[f].name +
                   "' joins columns of items with columns of the context; use sfm_score_items");
        (count ? fields : others).push_back(static_cast<std::int64_t>(f));
    }
    const auto n_fields = static_cast<std::int64_t>(fields.size()), n_others = static_cast<std::int64_t>(others.size());
    length = params.model == Model::fm    ? params.k
             : params.model == Model::ffm ? params.k * n_fields * n_others
                                          : params.k * n_fields + 2 * third;
    panel = std::min(WIDEST, std::max<std::int64_t>(STEP, up_to(n, STEP)));
    const std::int64_t rows = up_to(n, panel);
    if (length && rows > std::numeric_limits<std::int64_t>::max() / 8 / length) throw std::bad_alloc();
    vectors = Buffer<float>(rows * length);
    offsets = Buffer<float>(rows);
    std::fill(offsets.data(), offsets.data() + rows, -std::numeric_limits<float>::infinity());
}

// s_f of all fields, `width` numbers each, zeros where a row has no terms; and Σ q_u and Σ_{u<v} q_u q_v of the numbers
// of units that meet in triples.
void Items::sum_fields(const Terms& terms, Search& work) const {
    const std::int64_t width = params.width, size = params.n_fields * width;
    float *const sums = room(work.sums, size + 2 * third), *const ones = sums + size, *const twos = ones + third;
    float* const unit = room(work.unit, width);
    std::fill(sums, sums + size + 2 * third, 0.0f);
    for (std::int64_t u = 0; u < terms.n_units; ++u) {
        const auto at = static_cast<std::size_t>(u);
        std::fill(unit, unit + width, 0.0f);
        for (std::int64_t t = terms.ends[at]; t < terms.ends[at + 1]; ++t) {
            const float weight = terms.weights[static_cast<std::size_t>(t)];
            const float* const from = params.factors + terms.features[static_cast<std::size_t>(t)] * width;
            for (std::int64_t c = 0; c < width; ++c) unit[c] += weight * from[c];
        }
        float* const to = sums + terms.unit_fields[at] * width;
        for (std::int64_t c = 0; c < width; ++c) to[c] += unit[c];
        for (std::int64_t c = 0; c < third; ++c) {
            const float q = unit[params.k + c];
            twos[c] += q * ones[c];
            ones[c] += q;
        }
    }
}

void Items::set(std::int64_t item, const Terms& terms, double score, Search& work) {
    const std::int64_t k = params.k, width = params.width;
    sum_fields(terms, work);
    float* const to = vectors.data() + item / panel * panel * length + item % panel;
    std::int64_t j = 0;
    const auto add = [&](const float* from) {
        for (std::int64_t c = 0; c < k; ++c) to[j++ * panel] += from[c];
    };
    for (const std::int64_t f : fields) {
        const float* const sum = work.sums.data() + f * width;
        if (params.model == Model::ffm) {
            for (const std::int64_t e : others) add(sum + e * k);
        } else {
            if (params.model == Model::fm) j = 0;
            add(sum);
        }
    }
    // A triple has one unit of one side and two of the other: all others are in the scores of the sides alone.
    const float* const triples = work.sums.data() + params.n_fields * width;
    for (std::int64_t c = 0; c < 2 * third; ++c) to[j++ * panel] = triples[c];
    offsets.data()[item] = static_cast<float>(score - params.bias);
}

void Items::make_query(const Terms& context, Search& work) const {
    const std::int64_t k = params.k, width = params.width, n_all = params.n_fields;
    sum_fields(context, work);
    float* const query = room(work.query, length);
    std::fill(query, query + length, 0.0f);
    float* to = query;
    for (const std::int64_t f : fields) {
        for (const std::int64_t e : others) {
            const float* const sum = work.sums.data() + e * width;
            const std::int64_t low = std::min(f, e), high = std::max(f, e);
            switch (params.model) {
            case Model::fm:
                if (f == fields.front())
                    for (std::int64_t c = 0; c < k; ++c) query[c] += sum[c];
                break;
            case Model::fmfm: {  // p_low' M p_high
                const float* const M = params.between + (high * n_all + low) * k * k;
                for (std::int64_t i = 0; i < k; ++i)
                    for (std::int64_t c = 0; c < k; ++c) to[f == high ? c : i] += M[i * k + c] * sum[f == high ? i : c];
                break;
            }
            case Model::ffm: {
                std::copy(sum + f * k, sum + (f + 1) * k, to);
                to += k;
                break;
            }
            default:
                for (std::int64_t c = 0; c < k; ++c)
                    to[c] += params.between[(c * params.members / k * n_all + high) * n_all + low] * sum[c];
            }
        }
        if (params.model == Model::fwfm || params.model == Model::fmfm) to += k;
    }
    const float* const triples = work.sums.data() + n_all * width;
    if (third) std::copy(triples, triples + third, std::copy(triples + third, triples + 2 * third, to));
}

VectorItems Items::view() const {
    const std::int64_t rows = up_to(n, STEP);
    return {.storage = Storage::float32,
            .panels = vectors.data(),
            .n_panels = up_to(n, panel) / panel,
            .length = length,
            .size = panel,
            .scales = nullptr,
            .offsets = offsets.data(),
            .n_rows = rows};
}

void Items::score(const Terms& context, double constant, Search& work, float* out) const {
    const FlushDenormals flushed;
    make_query(context, work);
    const VectorItems items = view();
    float *const products = room(work.products, items.n_rows), *const scratch = room(work.scratch, panel);
    kernels().rank->row_effects(items, work.query.data(), 1, products, scratch);
    const auto shared = static_cast<float>(constant);
    for (std::int64_t i = 0; i < n; ++i) out[i] = products[i] + (offsets.data()[i] + shared);
}

std::int64_t Items::top_k(const Terms& context, double constant, std::int64_t k, Search& work, std::int64_t* found,
                          float* scores) const {
    k = std::min(k, n);
    if (k == 0) return 0;
    {
        const FlushDenormals flushed;
        make_query(context, work);
    }
    const VectorItems items = view();
    return search(items, visit_all(items.n_panels, work), work.query.data(), static_cast<float>(constant), Filter{}, k,
                  work, found, scores);
}

}  // namespace splinefm::c
