// Training and scoring, compiled once per instruction set.
#include "kernels/engine.hpp"

#include "kernels/between.hpp"
#include "kernels/ffm.hpp"
#include "kernels/fm.hpp"
#include "kernels/fmfm.hpp"
#include "kernels/fwfm.hpp"
#include "kernels/higher.hpp"
#include "kernels/rows.hpp"
#include "kernels/scatter.hpp"

namespace splinefm::SPLINEFM_ISA {

namespace {

template <template <int, bool> class M, int K, bool FIXED> struct ByRows {
    using Kernel = M<K, FIXED>;

    static void score(const Scoring& scoring, Index first, Index n) {
        const Shape shape = scoring.shape;
        for (Index at = first; at < first + n; at += shape.tile) {
            const Index n_rows = least(shape.tile, first + n - at);
            transpose(shape, scoring.data, at, n_rows, scoring.columns, 0, true);
            for (Index output = 0; output < scoring.n_outputs; ++output) {
                const Weights weights = scoring.weights[output];
                float* scores = scoring.scores + output * scoring.n_scores + at;
                for (Index i = 0; i < n_rows; ++i) scores[i] = weights.bias[0];
                const Derivatives D = Kernel::derivatives(shape, scoring.D, shape.tile);
                Kernel::scores(shape, weights, scoring.columns, 0, n_rows, scoring.scratch, D, scores);
            }
        }
    }

    // From row i of a block on.
    static Derivatives derivatives(const Shape& shape, const Work& work, Index i) {
        Derivatives D = Kernel::derivatives(shape, work.D, work.block);
        D.of += i * D.row;
        return D;
    }

    // A shard has gradients between fields of its own.
    static void shard(const Memory* outputs, const Block& block, Index part, const Scratch* scratch) {
        const Shape shape = outputs->shape;
        const Columns columns = outputs->columns;
        const Index shard = outputs->work.shard, n_outputs = outputs->work.n_outputs;
        const Index begin = part * shard, end = least(begin + shard, block.n);
        for (Index output = 0; output < n_outputs && block.offset == 0; ++output) {
            const Work& work = outputs[output].work;
            float* between = work.between + part * work.n_between;
            for (Index i = 0; i < work.n_between; ++i) between[i] = 0.0f;
        }
        for (Index at = begin; at < end; at += shape.tile) {
            const Index n_rows = least(shape.tile, end - at), row = block.first + at;
            transpose(shape, block.data, row, n_rows, columns, at, false);
            for (Index output = 0; output < n_outputs; ++output) {
                const Weights weights = outputs[output].weights;
                const Work work = outputs[output].work;
                const Derivatives D = derivatives(shape, work, at);
                float* slopes = work.slopes + block.offset + at;
                for (Index i = 0; i < n_rows; ++i) slopes[i] = weights.bias[0];
                Kernel::scores(shape, weights, columns, at, n_rows, scratch[output], D, slopes);
            }
            for (Index i = 0; i < n_rows; ++i) set_slopes(outputs, block, at + i);
            for (Index output = 0; output < n_outputs; ++output) {
                const Work work = outputs[output].work;
                Kernel::pairs(shape, scratch[output], derivatives(shape, work, at), n_rows,
                              work.slopes + block.offset + at, work.between + part * work.n_between);
            }
        }
    }

    static void field(const Memory& memory, const Block& block, Index field, const Scratch& scratch) {
        scatter<K, FIXED, Kernel::HAS_SUMS>(memory, block, derivatives(memory.shape, memory.work, 0), field,
                                            scratch.sums);
        if (block.last) update_field<Kernel::PIECE>(memory, length<K, FIXED>(memory.shape), field, block.step);
    }
};

template <int K, bool FIXED> void update_r(const Memory& memory, const Step& step, Index field) {
    update_weights<K, FIXED>(memory, step, field);
}

template <int K, bool FIXED> void update_u(const Memory& memory, const Step& step, Index field) {
    if (field == 0) update_low_rank<K, FIXED>(memory, step);
}

template <int K, bool FIXED> void update_m(const Memory& memory, const Step& step, Index field) {
    update_matrices<K, FIXED>(memory, step, field);
}

template <template <int, bool> class M, int K, bool FIXED>
ModelKernels by_rows(void (*between)(const Memory&, const Step&, Index)) {
    using Kernel = ByRows<M, K, FIXED>;
    return {Kernel::score, nullptr, nullptr, Kernel::shard, Kernel::field, between};
}

template <int K, bool FIXED> ModelKernels of_model(Model model) {
    switch (model) {
    case Model::fm: return by_rows<FM, K, FIXED>(nullptr);
    case Model::fwfm: return by_rows<PairsFwFM, K, FIXED>(update_r<K, FIXED>);
    case Model::low_rank: return by_rows<PairsFwFM, K, FIXED>(update_u<K, FIXED>);
    case Model::fmfm: return by_rows<FmFM, K, FIXED>(update_m<K, FIXED>);
    case Model::higher: return by_rows<HigherOrderFM, K, FIXED>(nullptr);
    case Model::ffm: break;
    }
    using Kernel = FFM<K, FIXED>;
    return {Kernel::score, Kernel::transpose_shard, Kernel::positions, Kernel::shard, Kernel::field, nullptr};
}

ModelKernels choose(const ModelSettings& settings) {
    const Model model = settings.model;
    const Index k = settings.k, third = settings.third, members = settings.members;
    if (model == Model::fwfm && third == k && members == 1) {  // as in the default model
        if (k == 8) return by_rows<HalvesFwFM, 16, true>(update_r<8, true>);
        if (k == 16) return by_rows<HalvesFwFM, 32, true>(update_r<16, true>);
    }
    const bool has_parts = third > 0 || (members > 1 && model == Model::fwfm);
    switch (has_parts ? 0 : k) {  // a piece of eight numbers belongs to one part
    case 4: return of_model<4, true>(model);
    case 8: return of_model<8, true>(model);
    case 16: return of_model<16, true>(model);
    case 32: return of_model<32, true>(model);
    default: return of_model<8, false>(model);  // k is a multiple of 8
    }
}

void sum_shards(const Memory& memory, std::int64_t n_shards, std::int64_t part) {
    const Index n = memory.work.n_between;
    float* gradients = memory.work.between;
    for (Index shard = 1; shard < n_shards; ++shard) {
        const float* more = gradients + shard * n;
        for (Index at = part * n / SUMS; at < (part + 1) * n / SUMS; ++at) gradients[at] += more[at];
    }
}

double finish(const Memory& memory, std::int64_t n, double total_weight, const Step& step) {
    double loss = 0.0, slope = 0.0;
    for (Index i = 0; i < n; ++i) {
        loss += memory.work.losses[i];
        slope += static_cast<double>(memory.work.slopes[i]);
    }
    optimize<1>(memory.targets.bias, 0, {static_cast<float>(slope)}, 0.0f, memory.bias, without_decay(step));
    return loss / total_weight;
}

}  // namespace

extern const EngineKernels engine_kernels;
const EngineKernels engine_kernels = {choose, sum_shards, finish};

}  // namespace splinefm::SPLINEFM_ISA
