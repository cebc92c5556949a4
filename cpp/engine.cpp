#include "engine.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "dispatch.hpp"
#include "windows.hpp"

namespace splinefm {
namespace {

constexpr std::int64_t ROWS_PER_THREAD = 512;  // with fewer, a thread costs more than it saves when scoring
constexpr std::int64_t ROWS_TO_CHECK = 4096;   // that a thread takes at a time
constexpr std::int64_t AHEAD = 16;             // rows ahead whose memory is prefetched

void need(bool holds, const char* problem) {
    if (!holds) throw std::invalid_argument(problem);
}

std::int64_t up_to(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

// Whether all windows of rows `first` to `last` - 1 of a call begin inside of their fields.
bool all_inside(const Shape& shape, const Data& data, std::int64_t first, std::int64_t last) {
    const std::int64_t n_windows = shape.n_windows;
    const std::int32_t *lowest = shape.lowest, *highest = shape.highest;
    std::int32_t wrong = 0;
    for (std::int64_t i = first; i < last; ++i) {
        if (i + AHEAD < last) {
            const std::int32_t* ahead = data.start + data.rows[i + AHEAD] * n_windows;
            for (std::int64_t at = 0; at < n_windows; at += 16) __builtin_prefetch(ahead + at);
        }
        const std::int32_t* start = data.start + data.rows[i] * n_windows;
        for (std::int64_t w = 0; w < n_windows; ++w) wrong |= (start[w] < lowest[w]) | (start[w] > highest[w]);
    }
    return wrong == 0;
}

void check_model(const ModelSettings& settings) {
    const auto [model, k, third, members, order] = settings;
    need(k == 4 || (k >= 8 && k % 8 == 0), "k must be 4 or a multiple of 8");
    need(third == 0 || (third > 0 && third % 8 == 0 && k % 8 == 0), "k and third must be multiples of 8");
    need(third == 0 || model == Model::fwfm, "only an fwfm has triples");
    const bool averages = model == Model::fwfm || model == Model::higher;
    need(members == 1 || (members > 1 && averages && k % (8 * members) == 0),
         "an fwfm or a higher has members of a multiple of 8 numbers each, other models have one");
    need(model != Model::higher || order >= 2, "order must be at least 2");
}

// The targets of a softmax are numbers of classes.
void check_labels(const Data& data, std::int64_t n, std::int64_t n_classes) {
    for (std::int64_t i = 0; i < n; ++i) {
        const double y = data.y[data.rows[i]];
        if (!(y >= 0.0 && y < static_cast<double>(n_classes) && y == std::floor(y))) {
            throw std::invalid_argument("the targets of a softmax must be integers from 0 to " +
                                        std::to_string(n_classes - 1) + ", got " + std::to_string(y));
        }
    }
}

const char* const WRONG_START = "start has features outside of the field of their window";

}  // namespace

ShapeData::ShapeData(Numbers weight_ptr, Numbers window_unit, Numbers unit_field, Numbers window_ptr,
                     Numbers feature_ptr, const Numbers& apart)
    : weight_ptr(std::move(weight_ptr)), window_unit(std::move(window_unit)), unit_field(std::move(unit_field)),
      window_ptr(std::move(window_ptr)), feature_ptr(std::move(feature_ptr)) {
    unit_ptr = check_windows(this->weight_ptr, this->window_unit, this->unit_field);
    need(ascending(this->window_ptr) && ascending(this->feature_ptr),
         "window_ptr and feature_ptr must begin at 0 and be non-decreasing");
    need(this->feature_ptr.size() >= 2 && this->window_ptr.size() == this->feature_ptr.size(),
         "window_ptr and feature_ptr must have one entry more than fields");
    need(this->window_ptr.back() == n_windows(), "window_ptr must cover all windows");
    for (std::int64_t f = 0; f < n_fields(); ++f) {
        need(this->window_ptr[f] < this->window_ptr[f + 1], "every field needs a window");
        for (std::int32_t w = this->window_ptr[f]; w < this->window_ptr[f + 1]; ++w) {
            const std::int32_t width = this->weight_ptr[w + 1] - this->weight_ptr[w];
            need(this->unit_field[this->window_unit[w]] == f,
                 "unit_field and the windows of the fields are incompatible");
            need(width >= 1 && width <= this->feature_ptr[f + 1] - this->feature_ptr[f],
                 "a window is empty or longer than its field");
            lowest.push_back(this->feature_ptr[f]);
            highest.push_back(this->feature_ptr[f + 1] - width);
        }
    }
    need(apart.size() % 2 == 0, "apart must have pairs of fields");
    apart_ptr.assign(static_cast<std::size_t>(n_fields()) + 1, 0);
    for (std::size_t at = 0; at < apart.size(); at += 2) {
        need(0 <= apart[at] && apart[at] < apart[at + 1] && apart[at + 1] < n_fields(),
             "apart must have pairs f < e of fields");
        ++apart_ptr[static_cast<std::size_t>(apart[at]) + 1];
    }
    for (std::size_t f = 1; f < apart_ptr.size(); ++f) apart_ptr[f] += apart_ptr[f - 1];
    apart_fields.resize(apart.size() / 2);
    Numbers next = apart_ptr;
    for (std::size_t at = 0; at < apart.size(); at += 2) {
        apart_fields[static_cast<std::size_t>(next[static_cast<std::size_t>(apart[at])]++)] = apart[at + 1];
    }
}

Shape ShapeData::view(const ModelSettings& model, std::int64_t tile) const {
    Shape shape{};
    shape.weight_ptr = weight_ptr.data();
    shape.window_unit = window_unit.data();
    shape.unit_field = unit_field.data();
    shape.unit_ptr = unit_ptr.data();
    shape.window_ptr = window_ptr.data();
    shape.feature_ptr = feature_ptr.data();
    shape.lowest = lowest.data();
    shape.highest = highest.data();
    shape.apart_ptr = apart_ptr.data();
    shape.apart = apart_fields.data();
    shape.n_fields = n_fields();
    shape.n_units = n_units();
    shape.n_windows = n_windows();
    shape.n_weights = n_weights();
    shape.k = model.k + model.third;
    shape.paired = model.k;
    shape.members = model.members;
    shape.width = model.model == Model::ffm ? model.k * n_fields() : shape.k;
    shape.order = model.order;
    shape.tile = tile;
    return shape;
}

std::int64_t ShapeData::summed_features() const {
    std::int64_t most = 0;
    for (std::int64_t f = 0; f < n_fields(); ++f) {
        const std::int64_t rows = feature_ptr[f + 1] - feature_ptr[f];
        for (std::int32_t w = window_ptr[f]; w < window_ptr[f + 1]; ++w) {
            if (rows <= MAX_SUMMED && weight_ptr[w + 1] - weight_ptr[w] == 4) most = std::max(most, rows);
        }
    }
    return most;
}

std::int64_t stride_of(Model model, const Shape& shape) {
    switch (model) {
    case Model::fm: return shape.k;
    case Model::ffm: return 0;
    case Model::fmfm: return up_to(shape.n_units * shape.k, 16);
    default: return up_to(shape.n_units, 4) * shape.k;
    }
}

std::int64_t between_of(Model model, const Shape& shape) {
    switch (model) {
    case Model::fwfm:
    case Model::low_rank: return up_to(shape.n_units, 4) * up_to(shape.n_units, 4) * shape.paired;
    case Model::fmfm: return up_to(shape.n_units * shape.k, 16) * (up_to(shape.n_units * shape.k, 16) + 16) / 2;
    default: return 0;
    }
}

std::int64_t copied_weights(Model model, const Shape& shape) {
    const bool has_weights = model == Model::fwfm || model == Model::low_rank;
    return has_weights ? shape.members * up_to(shape.n_units, 4) * shape.n_units : 0;
}

std::int64_t copied_matrices(Model model, const Shape& shape) {
    return model == Model::fmfm ? up_to(shape.n_units * shape.k, 16) * shape.n_units * shape.k : 0;
}

ScratchData::ScratchData(Model model, const ShapeData& layout, const Shape& shape, std::int64_t n_outputs) {
    std::int64_t n_P = shape.n_fields * shape.width, n_Z = 0, n_A = shape.n_units * shape.k;  // of an FFM
    if (model != Model::ffm) {
        n_P = shape.tile * up_to(up_to(shape.n_units, 4) * shape.k, 16);
        n_Z = std::max(n_P, (shape.order + 1) * 32);
        n_A = model == Model::higher ? shape.tile * (shape.n_units + 1) * (shape.order + 1) * shape.k : 0;
    }
    P = Buffer<float>(n_outputs * n_P);
    Z = Buffer<float>(n_Z);
    A = Buffer<float>(n_outputs * n_A);
    const std::int64_t rows = layout.summed_features();
    vectors = Buffer<float>(rows * shape.k);
    linear = Buffer<float>(rows);
    weight = Buffer<float>(rows);
    const Sums sums{vectors.data(), linear.data(), weight.data()};
    for (std::int64_t output = 0; output < n_outputs; ++output) {
        by_output.push_back({P.data() + output * n_P, Z.data(), A.data() + output * n_A, sums});
    }
}

void Groups::check(const ShapeData& layout) const {
    const std::size_t n = begin.size();
    need(end.size() == n && l2.size() == n && l2_third.size() == n && l2_linear.size() == n && smoothness.size() == n &&
             order.size() == n && signs.size() == 4 * n && periodic.size() == n && lengths.size() == 3 * n,
         "penalties must have a number for every group");
    const Shape shape = layout.view({Model::fm, 4, 0, 1, 0}, 4);
    need(static_cast<std::int64_t>(group_ptr.size()) == shape.n_fields + 1 && group_ptr.front() == 0 &&
             std::is_sorted(group_ptr.begin(), group_ptr.end()) && group_ptr.back() == static_cast<std::int64_t>(n),
         "group_ptr and the fields are incompatible");
    for (std::int64_t f = 0; f < shape.n_fields; ++f) {
        std::int64_t row = shape.feature_ptr[f];
        for (std::int64_t group = group_ptr[f]; group < group_ptr[f + 1]; ++group) {
            need(begin[group] == row && end[group] >= row, "groups must lie end to end");
            need(order[group] >= 1 && order[group] <= 3, "the order of differences must be from 1 to 3");
            const std::int64_t *sides = lengths.data() + 3 * group, size = end[group] - begin[group];
            bool fits = true;
            std::int64_t block = 1;
            for (int axis = 0; axis < 3 && fits; ++axis) {
                fits = sides[axis] >= 1 && block <= std::max<std::int64_t>(size, 1) / sides[axis];
                if (fits) block *= sides[axis];
            }
            need(fits && size % block == 0, "a group must consist of blocks of its lengths");
            row = end[group];
        }
        need(row == shape.feature_ptr[f + 1], "groups must cover every field");
    }
}

Penalty Groups::view() const {
    return {group_ptr.data(),  begin.data(), end.data(),   l2.data(),       l2_third.data(), l2_linear.data(),
            smoothness.data(), order.data(), signs.data(), periodic.data(), lengths.data()};
}

Engine::Engine(std::shared_ptr<const ShapeData> given_layout, const Settings& given_settings,
               const Parameters& parameters)
    : layout(std::move(given_layout)), settings(given_settings), team(given_settings.threads), single_thread(1) {
    const Settings& s = settings;
    check_model(s.model);
    const auto [tile, shard, n_block, batch_size] = s.sizes;
    const Model model = s.model.model;
    need(tile >= 4 && tile % 4 == 0 && shard >= 16 && shard % 16 == 0 && n_block >= shard && n_block % shard == 0 &&
             batch_size >= 1 && (model == Model::ffm || shard % tile == 0),
         "sizes of tiles, shards and blocks are incompatible");
    need(model != Model::ffm || n_block >= batch_size, "the batch of an FFM is one block");
    const int kind = static_cast<int>(s.loss.kind);
    need(kind >= 0 && kind < N_LOSSES, "unknown kind of loss");
    need(s.loss.kind == LossKind::softmax ? s.n_outputs >= 2 : s.n_outputs == 1,
         "softmax needs a bias for each of two or more classes, and other losses have one");
    kernels = splinefm::kernels().engine->choose(s.model);
    const Shape shape = layout->view(s.model, tile);
    // A LowRankFwFM needs the gradient of every weight as well.
    between_gradient = Buffer<float>(s.n_outputs * (parameters.n_between + shape.n_fields * shape.n_fields));
    scales_gradient = Buffer<float>(s.n_outputs * parameters.n_scales);
    const std::int64_t n_rows = up_to(n_block + 1, 16);  // an FFM looks one row ahead
    start = Buffer<std::int32_t>(shape.n_windows * n_rows);
    weight = Buffer<float>(shape.n_weights * n_rows);
    D = Buffer<float>(s.n_outputs * n_block * stride_of(model, shape));
    slopes = Buffer<float>(s.n_outputs * up_to(batch_size, 16));
    row_losses = Buffer<double>(batch_size);
    shards = Buffer<float>(s.n_outputs * (n_block / shard) * between_of(model, shape));
    for (std::int64_t output = 0; output < s.n_outputs; ++output) set_output(output, shape, parameters);
    for (int thread = 0; thread < s.threads; ++thread) scratch.emplace_back(model, *layout, shape, s.n_outputs);
    taken = std::vector<std::atomic<bool>>(scratch.size());
    for (std::int64_t i = 0; i < POWERS; ++i)
        powers.push_back(static_cast<float>(std::pow(s.optimizer.ema, static_cast<double>(i))));

    Groups none;  // a group without penalty for every field
    none.group_ptr.push_back(0);
    for (std::int64_t f = 0; f < shape.n_fields; ++f) {
        none.group_ptr.push_back(f + 1);
        none.begin.push_back(shape.feature_ptr[f]);
        none.end.push_back(shape.feature_ptr[f + 1]);
        for (auto* values : {&none.l2, &none.l2_third, &none.l2_linear, &none.smoothness}) values->push_back(0.0f);
        none.order.push_back(1);
        none.signs.insert(none.signs.end(), 4, 0.0f);
        none.periodic.push_back(0);
        none.lengths.insert(none.lengths.end(), 3, 1);
    }
    set_penalty(std::move(none));
}

// An output uses a part of the parameters and of the workspace.
void Engine::set_output(std::int64_t output, const Shape& shape, const Parameters& parameters) {
    const Model model = settings.model.model;
    const OptimizerSettings& optimizer = settings.optimizer;
    const BatchSizes& sizes = settings.sizes;
    const auto part = [](auto* values, std::int64_t n) { return values == nullptr ? values : values + n; };
    const auto state = [&](const State& all, std::int64_t n, std::int64_t n_last) {
        // A setting that is not used has an array of one number.
        return State{optimizer.adam ? part(all.m, n) : all.m, part(all.v, n),
                     optimizer.ema > 0.0 ? part(all.average, n) : all.average,
                     optimizer.ema > 0.0 ? part(all.last, n_last) : all.last};
    };
    const std::int64_t n_features = output * layout->n_features(), n_vectors = n_features * shape.width;
    const std::int64_t n_between = output * parameters.n_between, n_scales = output * parameters.n_scales;
    const std::int64_t n_all = output * (parameters.n_between + shape.n_fields * shape.n_fields);
    const Targets& all = parameters.targets;
    const Targets t{all.T + n_vectors, all.L + n_features, all.bias + output,
                    all.R + output * copied_weights(model, shape), all.M + output * copied_matrices(model, shape)};
    Memory memory{};
    memory.shape = shape;
    memory.loss = settings.loss;
    memory.targets = t;
    memory.weights = {t.T, t.L, t.bias, t.R, t.M};
    memory.vectors = state(parameters.vectors, n_vectors, n_features);
    memory.linear = state(parameters.linear, n_features, 0);
    memory.bias = state(parameters.bias, output, 0);
    memory.between = {part(parameters.between, n_between), between_gradient.data() + n_all, parameters.n_between,
                      state(parameters.between_state, n_between, 0)};
    memory.scales = {part(parameters.scales, n_scales), scales_gradient.data() + n_scales, parameters.n_scales,
                     state(parameters.scales_state, n_scales, 0)};
    memory.columns = {start.data(), weight.data(), &wrong};
    const std::int64_t stride = stride_of(model, shape), n_pairs = between_of(model, shape);
    const std::int64_t n_shards = sizes.block / sizes.shard;
    memory.work = {D.data() + output * sizes.block * stride,
                   slopes.data() + output * up_to(sizes.batch_size, 16),
                   row_losses.data(),
                   shards.data() + output * n_shards * n_pairs,
                   n_pairs,
                   n_shards,
                   sizes.shard,
                   sizes.block,
                   settings.n_outputs};
    outputs.push_back(memory);
}

void Engine::set_penalty(Groups given) {
    given.check(*layout);
    const std::lock_guard lock(busy);
    groups = std::move(given);
    for (Memory& memory : outputs) memory.penalty = groups.view();
    make_active();
}

// Allocate buffers for the active features of a batch: all of a small field, a part of a large one.
void Engine::make_active() {
    const Shape& shape = outputs.front().shape;
    const bool is_ffm = settings.model.model == Model::ffm;
    const std::int64_t shares = is_ffm ? outputs.front().work.n_shards : 1;  // each shard has its own positions
    std::vector<std::int64_t> positions{0};
    for (std::int64_t f = 0; f < shape.n_fields; ++f) {
        const std::int64_t n_features = shape.feature_ptr[f + 1] - shape.feature_ptr[f];
        std::int64_t capacity = std::min(n_features * shares, settings.sizes.batch_size * layout->weights_of(f));
        const auto first = groups.smoothness.begin() + groups.group_ptr[f];
        const auto last = groups.smoothness.begin() + groups.group_ptr[f + 1];
        if (std::any_of(first, last, [](float strength) { return strength > 0.0f; })) {
            capacity = is_ffm ? n_features + capacity : std::max(n_features, capacity);
        }
        positions.push_back(positions.back() + capacity);
    }
    if (positions == ptr) return;
    need(positions.back() <= std::numeric_limits<std::int32_t>::max(),
         "a batch can have too many active features: it is too large");
    ptr = std::move(positions);
    const std::int64_t n = ptr.back();
    active.clear();
    for (Memory& memory : outputs) {
        // Every output has its own, so that threads can take fields of several outputs at a time.
        ActiveData& own = active.emplace_back();
        own.index_of = Buffer<std::int32_t>(layout->n_features());
        std::fill_n(own.index_of.data(), layout->n_features(), -1);
        own.features = Buffer<std::int32_t>(n);
        own.gradient = Buffer<float>(n * shape.width);
        own.linear = Buffer<float>(n);
        own.self_weight = Buffer<float>(n);
        own.before = Buffer<std::int32_t>(is_ffm ? n : 0);
        own.position = Buffer<std::int32_t>(is_ffm ? shape.n_weights * up_to(settings.sizes.block, 16) : 0);
        own.n_active = Buffer<std::int64_t>(16 * shape.n_fields);
        memory.active = {own.index_of.data(),    own.features.data(), own.gradient.data(), own.linear.data(),
                         own.self_weight.data(), own.position.data(), own.before.data(),   ptr.data(),
                         own.n_active.data()};
    }
}

Step Engine::next_step(double learning_rate) {
    const OptimizerSettings& s = settings.optimizer;
    const auto number = static_cast<double>(++settings.n_steps);
    Step step{};
    step.adam = s.adam;
    step.lr = static_cast<float>(learning_rate);
    step.rate1 = static_cast<float>(1.0 - s.beta1);
    step.rate2 = static_cast<float>(1.0 - s.beta2);
    step.correct1 = static_cast<float>(1.0 / (1.0 - std::pow(s.beta1, number)));
    step.correct2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(s.beta2, number)));
    step.eps = static_cast<float>(s.eps);
    step.decay = static_cast<float>(s.weight_decay);
    step.ema = s.ema;
    step.powers = powers.data();
    step.number = settings.n_steps;
    return step;
}

// Parts that need scratch: there is one for every thread, and no more parts than threads at a time.
template <class Part> void Engine::with_scratch(std::int64_t parts, Part part) {
    current->run(static_cast<int>(parts), [&](int i) noexcept {
        std::size_t mine = 0;
        while (taken[mine].exchange(true, std::memory_order_acquire)) mine = (mine + 1) % scratch.size();
        part(i, scratch[mine].views());
        taken[mine].store(false, std::memory_order_release);
    });
}

// Before the first step: a call with a wrong row changes nothing.
void Engine::check_starts(const Data& data, std::int64_t n) {
    std::atomic<bool> outside{false};
    current->run(static_cast<int>((n + ROWS_TO_CHECK - 1) / ROWS_TO_CHECK), [&](int part) noexcept {
        const std::int64_t first = part * ROWS_TO_CHECK, last = std::min(first + ROWS_TO_CHECK, n);
        if (!all_inside(outputs.front().shape, data, first, last)) outside.store(true, std::memory_order_relaxed);
    });
    need(!outside, WRONG_START);
}

void Engine::steps(const Data& data, std::int64_t n, std::int64_t batch_size, const double* learning_rates,
                   double* losses) {
    need(batch_size >= 1 && batch_size <= settings.sizes.batch_size, "a batch has from 1 to `batch_size` rows");
    const std::lock_guard lock(busy);
    std::vector<double> totals;
    for (std::int64_t begin = 0; begin < n; begin += batch_size) {
        double total = 0.0;
        for (std::int64_t i = begin; i < std::min(begin + batch_size, n); ++i)
            total += data.sample_weight[data.rows[i]];
        if (!(total >= 0.0 && total < std::numeric_limits<double>::infinity())) {
            throw std::invalid_argument("sample weights must be finite and at least 0, but a batch sums to " +
                                        std::to_string(total));
        }
        totals.push_back(total);
    }
    if (settings.loss.kind == LossKind::softmax) check_labels(data, n, settings.n_outputs);
    current = std::min(n, batch_size) > settings.sizes.shard ? &team : &single_thread;
    check_starts(data, n);
    wrong = 0;  // set if an array changes after it was checked, by another thread of the caller: then nothing is read
                // from outside of the tables all the same
    for (std::size_t batch = 0; batch < totals.size(); ++batch) {
        losses[batch] = 0.0;
        // A total below the smallest normal number counts as zero while denormals are flushed: nothing divides by it.
        if (totals[batch] < std::numeric_limits<double>::min()) continue;
        const auto begin = static_cast<std::int64_t>(batch) * batch_size, end = std::min(begin + batch_size, n);
        const Step step = next_step(learning_rates[batch]);
        losses[batch] = settings.model.model == Model::ffm ? by_positions(data, begin, end, totals[batch], step)
                                                           : by_rows(data, begin, end, totals[batch], step);
        need(wrong == 0, WRONG_START);
    }
}

double Engine::by_rows(const Data& data, std::int64_t begin, std::int64_t end, double total_weight, const Step& step) {
    const auto& shared = *splinefm::kernels().engine;
    const std::int64_t n_fields = layout->n_fields(), n_outputs = settings.n_outputs;
    const std::int64_t n_parts = n_outputs * n_fields, n_sums = kernels.between == nullptr ? 0 : n_outputs * SUMS;
    const auto [tile, shard, longest, batch_size] = settings.sizes;
    const std::int64_t n_shards = (std::min(longest, end - begin) + shard - 1) / shard;
    double loss = 0.0;
    for (std::int64_t first = begin; first < end; first += longest) {
        const std::int64_t n = std::min(longest, end - first);
        const Block block{data, first, first - begin, n, first + n == end, total_weight, step};
        with_scratch((n + shard - 1) / shard,
                     [&](int part, const Scratch* scratch) { kernels.shard(outputs.data(), block, part, scratch); });
        with_scratch(n_parts + (block.last ? n_sums + 1 : 0), [&](int part, const Scratch* scratch) {
            if (part < n_parts) {
                kernels.field(outputs[part / n_fields], block, part % n_fields, *scratch);
            } else if (part < n_parts + n_sums) {
                shared.sum_shards(outputs[(part - n_parts) / SUMS], n_shards, (part - n_parts) % SUMS);
            } else {
                for (const Memory& memory : outputs) loss = shared.finish(memory, end - begin, total_weight, step);
            }
        });
    }
    if (kernels.between != nullptr) {
        current->run(static_cast<int>(n_parts),
                     [&](int part) noexcept { kernels.between(outputs[part / n_fields], step, part % n_fields); });
    }
    return loss;
}

double Engine::by_positions(const Data& data, std::int64_t begin, std::int64_t end, double total_weight,
                            const Step& step) {
    const std::int64_t n = end - begin, n_fields = layout->n_fields(), n_parts = settings.n_outputs * n_fields;
    const Block block{data, begin, 0, n, true, total_weight, step};
    const auto n_shards = static_cast<int>((n + settings.sizes.shard - 1) / settings.sizes.shard);
    current->run(n_shards, [&](int part) noexcept { kernels.transpose_shard(outputs.front(), block, part); });
    current->run(static_cast<int>(n_parts), [&](int part) noexcept {
        kernels.assign_positions(outputs[part / n_fields], block, part % n_fields);
    });
    with_scratch(n_shards,
                 [&](int part, const Scratch* scratch) { kernels.shard(outputs.data(), block, part, scratch); });
    double loss = 0.0;
    with_scratch(n_parts + 1, [&](int part, const Scratch* scratch) {
        if (part < n_parts) {
            kernels.field(outputs[part / n_fields], block, part % n_fields, *scratch);
        } else {
            const auto& shared = *splinefm::kernels().engine;
            for (const Memory& memory : outputs) loss = shared.finish(memory, n, total_weight, step);
        }
    });
    return loss;
}

void score(const ShapeData& layout, const ModelSettings& settings, std::int64_t tile,
           const std::vector<Weights>& weights, const Data& data, std::int64_t n, int threads, float* scores) {
    check_model(settings);
    const Model model = settings.model;
    need(tile >= 4 && tile % 4 == 0, "a tile must be a multiple of 4 rows");
    if (n == 0) return;
    tile = std::min(tile, up_to(n, 4));  // a small workspace for a single row
    const ModelKernels kernels = splinefm::kernels().engine->choose(settings);
    const Shape shape = layout.view(settings, tile);
    const auto parts =
        static_cast<int>(std::max<std::int64_t>(1, std::min<std::int64_t>(threads, n / ROWS_PER_THREAD)));
    struct Workspace {
        ScratchData scratch;
        Buffer<float> D, weight;
        Buffer<std::int32_t> start;
    };
    std::vector<Workspace> workspaces;
    const std::int64_t n_rows = up_to(tile + 1, 16);
    for (int part = 0; part < parts; ++part) {
        workspaces.push_back({ScratchData(model, layout, shape), Buffer<float>(tile * stride_of(model, shape)),
                              Buffer<float>(shape.n_weights * n_rows), Buffer<std::int32_t>(shape.n_windows * n_rows)});
    }
    std::int32_t wrong = 0;
    Team team(parts);
    team.run(parts, [&](int part) noexcept {
        const Workspace& workspace = workspaces[static_cast<std::size_t>(part)];
        const Columns columns{workspace.start.data(), workspace.weight.data(), &wrong};
        const std::int64_t first = n * part / parts, last = n * (part + 1) / parts;
        const Scoring scoring{shape,
                              weights.data(),
                              static_cast<std::int64_t>(weights.size()),
                              n,
                              data,
                              columns,
                              *workspace.scratch.views(),
                              scores,
                              workspace.D.data()};
        kernels.score(scoring, first, last - first);
    });
    need(wrong == 0, WRONG_START);
}

}  // namespace splinefm
