// Terms and effects of rows: q_f = Σ_{e≠f} M_fe z_e for every model, and the products with it.
#include "kernels/explain.hpp"

#include "explain/vectors.hpp"

namespace splinefm::SPLINEFM_ISA::explain {
namespace {

constexpr Index FOUR = 4;  // rows that share the loads of a matrix, and fields that share those of a vector

template <int K, int LENGTH> struct Rows : Vectors<K, LENGTH> {
    using Base = Vectors<K, LENGTH>;
    using Base::centered;
    using Base::dot;
    using Base::inner;
    using Base::matrix;
    using Base::stride;

    // The workspace: two vectors, then Z and sums.
    static float* after_units(const Task& task, float* workspace) { return workspace + 2 * stride(task); }

    static void inner_parts(const Task& shared, Index first, Index last, float* workspace) {
        const Task task = shared;
        const Index n_fields = task.layout.n_fields;
        for (Index i = first; i < last; ++i) {
            const Row row = row_of(task, i);
            for (Index f = 0; f < n_fields; ++f)
                task.out[i * n_fields + f] = inner(task, row, f, workspace) - task.offset[f];
        }
    }

    // q_f = Σ z - z_f.
    static void terms_fm(const Task& shared, Index first, Index last, float* workspace) {
        const Task task = shared;
        const Index n_fields = task.layout.n_fields, length = stride(task);
        float* Z = after_units(task, workspace);
        inner_parts(task, first, last, workspace);
        for (Index i = first; i < last; ++i) {
            double* out = task.out + i * n_fields;
            centered(task, row_of(task, i), Z);
            for (Index c = 0; c < length; c += K) {
                Vec<K> both = fill<K>(0.0f);
                for (Index f = 0; f < n_fields; ++f) both = both + load<K>(Z + f * length + c);
                for (Index f = 0; f < n_fields; ++f) {
                    const Vec<K> z = load<K>(Z + f * length + c);
                    out[f] += total(z * (0.5f * (both - z) + load<K>(task.slope + f * length + c)));
                }
            }
        }
    }

    // q_f = Σ_e r_fe z_e; four sums in registers share every load of z.
    static void terms_fwfm(const Task& shared, Index first, Index last, float* workspace) {
        const Task task = shared;
        const Index n_fields = task.layout.n_fields, length = stride(task), four = task.four;
        float* Z = after_units(task, workspace);
        inner_parts(task, first, last, workspace);
        for (Index i = first; i < last; ++i) {
            double* out = task.out + i * n_fields;
            centered(task, row_of(task, i), Z);
            for (Index c = 0; c < length; c += K) {
                for (Index f = 0; f < n_fields; f += FOUR) {
                    Vec<K> q0 = fill<K>(0.0f), q1 = q0, q2 = q0, q3 = q0;
                    const float* r = task.between + f;
                    for (Index e = 0; e < n_fields; ++e, r += four) {
                        const Vec<K> z = load<K>(Z + e * length + c);
                        q0 = r[0] * z + q0;
                        q1 = r[1] * z + q1;
                        q2 = r[2] * z + q2;
                        q3 = r[3] * z + q3;
                    }
                    add_slope(task, Z, f, c, q0, out);
                    if (f + 1 < n_fields) add_slope(task, Z, f + 1, c, q1, out);
                    if (f + 2 < n_fields) add_slope(task, Z, f + 2, c, q2, out);
                    if (f + 3 < n_fields) add_slope(task, Z, f + 3, c, q3, out);
                }
            }
        }
    }

    // Add z_f' (h_f + ½ q_f), K numbers of it.
    static void add_slope(const Task& task, const float* Z, Index f, Index c, Vec<K> q, double* out) {
        const Index at = f * stride(task) + c;
        out[f] += total(load<K>(Z + at) * (0.5f * q + load<K>(task.slope + at)));
    }

    // q_f = Σ_{e>f} M_fe z_e + Σ_{e<f} M_ef' z_e: every product of two fields counts half for each. The workspace is
    // for the vectors of four rows, and for as many sums: twice z_f' h_f and the products, number by number.
    static void terms_fmfm(const Task& shared, Index first, Index last, float* workspace) {
        const Task task = shared;
        const Index n_fields = task.layout.n_fields, length = stride(task), size = n_fields * length;
        float *Z = after_units(task, workspace), *sums = Z + FOUR * size;
        inner_parts(task, first, last, workspace);
        for (Index at = first; at < last; at += FOUR) {
            const Index n = last - at < FOUR ? last - at : FOUR;
            for (Index i = 0; i < n; ++i) {
                float *mine = Z + i * size, *sum = sums + i * size;
                centered(task, row_of(task, at + i), mine);
                for (Index c = 0; c < size; c += K)
                    store(sum + c, 2.0f * (load<K>(task.slope + c) * load<K>(mine + c)));
            }
            for (Index f = 0; f < n_fields; ++f)
                for (Index e = f + 1; e < n_fields; ++e)
                    add_products(task, matrix(task, f, e), Z + f * length, Z + e * length, sums + f * length,
                                 sums + e * length);
            for (Index i = 0; i < n; ++i)
                for (Index f = 0; f < n_fields; ++f)
                    task.out[(at + i) * n_fields + f] += 0.5f * sum_of(task, sums + i * size + f * length);
        }
    }

    // Add (M' z_f) z_e to the sums of f and e, for four rows.
    static void add_products(const Task& task, const float* M, const float* mine, const float* theirs, float* sum_mine,
                             float* sum_theirs) {
        const Index length = stride(task), size = task.layout.n_fields * length;
        for (Index c = 0; c < length; c += K) {
            Vec<K> t0 = fill<K>(0.0f), t1 = t0, t2 = t0, t3 = t0;
            for (Index j = 0; j < Base::length(task); ++j) {
                const Vec<K> m = load<K>(M + j * length + c);
                t0 = mine[j] * m + t0;
                t1 = mine[size + j] * m + t1;
                t2 = mine[2 * size + j] * m + t2;
                t3 = mine[3 * size + j] * m + t3;
            }
            add_product(theirs + c, t0, sum_mine + c, sum_theirs + c);
            add_product(theirs + size + c, t1, sum_mine + size + c, sum_theirs + size + c);
            add_product(theirs + 2 * size + c, t2, sum_mine + 2 * size + c, sum_theirs + 2 * size + c);
            add_product(theirs + 3 * size + c, t3, sum_mine + 3 * size + c, sum_theirs + 3 * size + c);
        }
    }

    static void add_product(const float* z, Vec<K> turned, float* sum_mine, float* sum_theirs) {
        const Vec<K> product = turned * load<K>(z);
        store(sum_mine, load<K>(sum_mine) + product);
        store(sum_theirs, load<K>(sum_theirs) + product);
    }

    static float sum_of(const Task& task, const float* x) {
        Vec<K> numbers = load<K>(x);
        for (Index c = K; c < stride(task); c += K) numbers = numbers + load<K>(x + c);
        return total(numbers);
    }

    // z_f' q_f = Σ_e z_f[e]' z_e[f]; the workspace is for the vectors of a row, and for a sum per field.
    static void terms_ffm(const Task& shared, Index first, Index last, float* workspace) {
        const Task task = shared;
        const Index n_fields = task.layout.n_fields, length = stride(task), size = n_fields * length;
        float *Z = after_units(task, workspace), *sums = Z + n_fields * size;
        const float* slope = task.slope;
        inner_parts(task, first, last, workspace);
        for (Index i = first; i < last; ++i) {
            centered(task, row_of(task, i), Z);
            double* out = task.out + i * n_fields;
            for (Index c = 0; c < length; c += K) {
                for (Index f = 0; f < n_fields; ++f) {
                    const float *z = Z + f * size + c, *h = slope + f * size + c, *other = Z + f * length + c;
                    Vec<K> mine = fill<K>(0.0f), main = mine;
                    for (Index e = 0; e < f; ++e) {
                        const Vec<K> part = load<K>(z + e * length);
                        const Vec<K> product = part * load<K>(other + e * size);
                        main = part * load<K>(h + e * length) + main;
                        mine = mine + product;
                        store(sums + e * K, load<K>(sums + e * K) + product);
                    }
                    for (Index e = f + 1; e < n_fields; ++e)
                        main = load<K>(z + e * length) * load<K>(h + e * length) + main;
                    store(sums + f * K, 2.0f * main + mine);
                }
                for (Index f = 0; f < n_fields; ++f) out[f] += 0.5f * total(load<K>(sums + f * K));
            }
        }
    }

    static void effects(const Task& shared, Index first, Index last, float* workspace) {
        const Task task = shared;
        const Index n_fields = task.layout.n_fields, parts = task.model == Model::ffm ? n_fields : 1;
        const Index size = parts * stride(task), n_effects = n_fields * (n_fields + 1) / 2;
        float* Z = after_units(task, workspace);
        for (Index i = first; i < last; ++i) {
            const Row row = row_of(task, i);
            double *out = task.out + i * n_effects, *pair = out + n_fields;
            centered(task, row, Z);
            for (Index f = 0; f < n_fields; ++f) {
                Vec<K> main = fill<K>(0.0f);
                for (Index c = f * size; c < (f + 1) * size; c += K)
                    main = load<K>(Z + c) * load<K>(task.slope + c) + main;
                out[f] = inner(task, row, f, workspace) + total(main) - task.offset[f];
                for (Index e = f + 1; e < n_fields; ++e) *pair++ = product(task, Z, f, e);
            }
        }
    }

    // z_f' M_fe z_e, by a matrix, by a weight, or of the parts that an FFM has for each other's field.
    static float product(const Task& task, const float* Z, Index f, Index e) {
        const Index length = stride(task), n_fields = task.layout.n_fields;
        const float *mine = Z + f * length, *theirs = Z + e * length;
        switch (task.model) {
        case Model::fm: return dot(task, mine, theirs);
        case Model::fwfm: return task.between[f * task.four + e] * dot(task, mine, theirs);
        case Model::fmfm: return dot(task, mine, matrix(task, f, e), theirs);
        default: break;  // an FFM
        }
        return dot(task, Z + (f * n_fields + e) * length, Z + (e * n_fields + f) * length);
    }

    static splinefm::explain::Loops loops(Model model) {
        const splinefm::explain::Loop terms = model == Model::fm     ? terms_fm
                                              : model == Model::fwfm ? terms_fwfm
                                              : model == Model::fmfm ? terms_fmfm
                                                                     : terms_ffm;
        return {K, inner_parts, terms, effects, vectors};
    }

    static void vectors(const Task& shared, Index first, Index last, float*) {
        const Task task = shared;
        const Index n_fields = task.layout.n_fields, width = task.width;
        for (Index i = first; i < last; ++i) {
            const Row row = row_of(task, i);
            for (Index f = 0; f < n_fields; ++f) {
                const Windows all{first_window(task, f), first_window(task, f + 1), 0, width, task.center + f * width};
                gather(task, row, all, task.vectors + (i * n_fields + f) * width);
            }
        }
    }
};

}  // namespace

splinefm::explain::Loops loops(Model model, Index k) {
    switch (k) {
    case 4: return Rows<4, 4>::loops(model);
    case 8: return Rows<8, 8>::loops(model);
    case 16: return Rows<16, 16>::loops(model);
    case 32: return Rows<16, 32>::loops(model);
    default: return Rows<8, 0>::loops(model);
    }
}

}  // namespace splinefm::SPLINEFM_ISA::explain
