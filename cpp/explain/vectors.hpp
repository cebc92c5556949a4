// Vectors of fields, Σ weight T[feature] over their windows, and a_f, the part of a field alone. For kernels only.
#pragma once

#include "explain/task.hpp"
#include "vec.hpp"

namespace splinefm::SPLINEFM_ISA::explain {

using splinefm::Model;
using splinefm::explain::Task;
using Index = std::int64_t;

// A row of slots.
struct Row {
    const std::int32_t* start;
    const float* weight;
};

inline Row row_of(const Task& task, Index i) {
    return {task.rows.start + i * task.layout.n_windows, task.rows.weight + i * task.layout.n_weights};
}

inline Index first_window(const Task& task, Index field) { return task.layout.unit_ptr[task.first_unit[field]]; }

// p + numbers c to c + K - 1 of Σ weight T[feature] over windows first to last - 1.
template <int K> inline Vec<K> sum(const Task& task, Row row, Index first, Index last, Index c, Vec<K> p) {
    const Index width = task.width;
    for (Index w = first; w < last; ++w) {
        const float* from = task.factors + row.start[w] * width + c;
        for (Index j = task.layout.weight_ptr[w]; j < task.layout.weight_ptr[w + 1]; ++j, from += width)
            p = row.weight[j] * load<K>(from) + p;
    }
    return p;
}

// The same for one number, for vectors of fewer than four numbers.
inline float sum(const Task& task, Row row, Index first, Index last, Index c, float p) {
    for (Index w = first; w < last; ++w) {
        const float* from = task.factors + row.start[w] * task.width + c;
        for (Index j = task.layout.weight_ptr[w]; j < task.layout.weight_ptr[w + 1]; ++j, from += task.width)
            p += row.weight[j] * *from;
    }
    return p;
}

// Windows whose vectors are summed: numbers c to c + n - 1 of them, less those of `center` if there is one.
struct Windows {
    Index first, last, c, n;
    const float* center;
};

// In pieces of K of at least K numbers; the last piece may begin inside the one before, and finds the same numbers.
template <int K> inline void gather_pieces(const Task& task, Row row, const Windows& from, float* to) {
    for (Index c = 0; c < from.n; c += K) {
        const Index at = c + K <= from.n ? c : from.n - K;
        const Vec<K> begin = from.center ? fill<K>(0.0f) - load<K>(from.center + at) : fill<K>(0.0f);
        store(to + at, sum<K>(task, row, from.first, from.last, from.c + at, begin));
    }
}

inline void gather(const Task& task, Row row, const Windows& from, float* to) {
    if (from.n >= 32) return gather_pieces<32>(task, row, from, to);
    if (from.n >= 8) return gather_pieces<8>(task, row, from, to);
    if (from.n >= 4) return gather_pieces<4>(task, row, from, to);
    for (Index c = 0; c < from.n; ++c)
        to[c] = sum(task, row, from.first, from.last, from.c + c, from.center ? -from.center[c] : 0.0f);
}

// Vectors of LENGTH numbers in pieces of K; LENGTH = 0: of any number, with zeros up to a multiple of K.
template <int K, int LENGTH> struct Vectors {
    static Index stride(const Task& task) { return LENGTH ? LENGTH : task.stride; }
    static Index length(const Task& task) { return LENGTH ? LENGTH : task.k; }

    static float dot(const Task& task, const float* a, const float* b) {
        Vec<K> products = fill<K>(0.0f);
        for (Index c = 0; c < stride(task); c += K) products = load<K>(a + c) * load<K>(b + c) + products;
        return total(products);
    }

    // a' M b.
    static float dot(const Task& task, const float* a, const float* M, const float* b) {
        Vec<K> products = fill<K>(0.0f);
        for (Index c = 0; c < stride(task); c += K) {
            Vec<K> turned = fill<K>(0.0f);
            for (Index j = 0; j < length(task); ++j) turned = a[j] * load<K>(M + j * stride(task) + c) + turned;
            products = turned * load<K>(b + c) + products;
        }
        return total(products);
    }

    static const float* matrix(const Task& task, Index f, Index e) {
        return task.between + (f * task.layout.n_fields + e) * length(task) * stride(task);
    }

    // k numbers of a vector, or of a part of one.
    static void gather_one(const Task& task, Row row, const Windows& from, float* to) {
        if constexpr (LENGTH == 0)
            gather(task, row, from, to);
        else
            gather_pieces<K>(task, row, {from.first, from.last, from.c, LENGTH, from.center}, to);
    }

    // Z = s_f - m_f of a row for all fields, each part with its stride.
    static void centered(const Task& task, Row row, float* Z) {
        const Index n_fields = task.layout.n_fields, width = task.width;
        const bool is_ffm = task.model == Model::ffm;
        for (Index f = 0; f < n_fields; ++f) {
            const Index first = first_window(task, f), last = first_window(task, f + 1);
            const float* center = task.center + f * width;
            if (!is_ffm) {
                gather_one(task, row, {first, last, 0, width, center}, Z + f * stride(task));
                continue;
            }
            if (f + 1 < n_fields) {
                const float* ahead = task.factors + row.start[last] * width;
                for (Index c = 0; c < width; c += 16) __builtin_prefetch(ahead + c);
            }
            float* parts = Z + f * n_fields * stride(task);
            if constexpr (LENGTH != 0) {
                gather(task, row, {first, last, 0, width, center}, parts);
            } else {
                float* side_by_side = Z + n_fields * n_fields * stride(task);  // in the workspace of the sums
                gather(task, row, {first, last, 0, width, center}, side_by_side);
                for (Index e = 0; e < n_fields; ++e)
                    for (Index c = 0; c < task.k; ++c) parts[e * stride(task) + c] = *side_by_side++;
            }
        }
    }

    // a_f: the linear part, and Σ_{u<v} p_u' M_ff p_v over the units of the field. `workspace` is for two vectors.
    static double inner(const Task& task, Row row, Index f, float* workspace) {
        double sum = 0.0;
        for (Index w = first_window(task, f); w < first_window(task, f + 1); ++w) {
            const float* linear = task.linear + row.start[w];
            for (Index j = task.layout.weight_ptr[w]; j < task.layout.weight_ptr[w + 1]; ++j)
                sum += row.weight[j] * *linear++;
        }
        const Index first = task.first_unit[f], last = task.first_unit[f + 1];
        if (last - first < 2) return sum;
        const Index part = task.model == Model::ffm ? f * task.k : 0;  // an FFM has a part for the field itself
        const std::int32_t* unit_ptr = task.layout.unit_ptr;
        float *before = workspace, *p = workspace + stride(task);
        gather_one(task, row, {unit_ptr[first], unit_ptr[first + 1], part, task.k, nullptr}, before);
        for (Index v = first + 1; v < last; ++v) {
            gather_one(task, row, {unit_ptr[v], unit_ptr[v + 1], part, task.k, nullptr}, p);
            if (task.model == Model::fmfm)
                sum += dot(task, before, matrix(task, f, f), p);
            else
                sum += task.inside[f] * dot(task, before, p);
            for (Index c = 0; c < stride(task); c += K) store(before + c, load<K>(before + c) + load<K>(p + c));
        }
        return sum;
    }
};

}  // namespace splinefm::SPLINEFM_ISA::explain
