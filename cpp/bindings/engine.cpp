// Training and scoring as Python sees them: `Shape`, the settings and arrays of an `Engine`, and `score`. Arrays are
// checked here.
#include "engine.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <array>
#include <optional>

#include "bindings/arrays.hpp"
#include "model_names.hpp"

namespace splinefm::bindings {
namespace {

void need(bool holds, const std::string& problem) {
    if (!holds) throw nb::value_error(problem.c_str());
}

template <class T> std::vector<T> copy_of(const In<T>& array, const char* name) {
    const T* first = numbers(array, name);
    return std::vector<T>(first, first + array.size());
}

Loss loss_of(const std::string& name, double parameter) {
    std::string all;
    for (int kind = 0; kind < N_LOSSES; ++kind) {
        const LossEntry& entry = LOSSES[kind];
        all += (kind ? ", " : "") + std::string(entry.name);
        if (name != entry.name) continue;
        const bool has_parameter = entry.low < entry.high;
        need(has_parameter ? entry.low < parameter && parameter < entry.high : parameter == 0.0,
             "the parameter of the " + name + " loss is out of range: " + std::to_string(parameter));
        return {static_cast<LossKind>(kind), parameter};
    }
    throw nb::value_error(("loss must be one of " + all + ", got '" + name + "'").c_str());
}

// Names of losses and the limits of their parameters: see `LOSSES`.
nb::dict loss_table() {
    nb::dict table;
    for (const LossEntry& entry : LOSSES) table[entry.name] = nb::make_tuple(entry.low, entry.high);
    return table;
}

ModelSettings make_model(const std::string& name, std::int64_t k, std::int64_t third, std::int64_t members,
                         std::int64_t order) {
    const ModelSettings model{model_of(name), k, third, members, order};
    need(k >= 1 && third >= 0 && members >= 1, "k and members must be at least 1, third at least 0");
    const bool averages = model.model == Model::fwfm || model.model == Model::higher;
    need(members == 1 || (members <= k && averages), "only an fwfm or a higher has members, at most k");
    return model;
}

OptimizerSettings make_optimizer(const std::string& name, double beta1, double beta2, double eps, double weight_decay,
                                 double ema) {
    need(name == "adagrad" || name == "adamw", "optimizer must be one of adagrad, adamw, got '" + name + "'");
    return {name == "adamw", beta1, beta2, eps, weight_decay, ema};
}

// Some parameters and their optimizer state: arrays that the engine keeps alive.
struct Parameter {
    Out<float> values, m, v, average;

    void check(const char* name, std::int64_t n, bool adam, bool averaged) const {
        const auto size = [](const Out<float>& array) { return static_cast<std::int64_t>(array.size()); };
        need(size(values) == n && size(v) == n && (!adam || size(m) == n) && (!averaged || size(average) == n),
             std::string(name) + " must have " + std::to_string(n) + " numbers, and so must the optimizer state of it");
    }
    State state(std::int64_t* last = nullptr) const {
        return {numbers(m, "m"), numbers(v, "v"), numbers(average, "average"), last};
    }
};

// The arrays that an engine works on: parameters of features, those between fields if the model has any, the copies R
// and M of these, and the step in which each feature was last active.
struct EngineArrays {
    Parameter bias, linear, factors;
    std::optional<Parameter> between, scales;
    Out<float> R, M;
    Out<std::int64_t> last;
};

// An engine, and the arrays that it works on.
struct KeptEngine {
    EngineArrays arrays;
    std::unique_ptr<Engine> engine;
};

std::shared_ptr<ShapeData> make_shape(In<std::int32_t> weight_ptr, In<std::int32_t> window_unit,
                                      In<std::int32_t> unit_field, In<std::int32_t> window_ptr,
                                      In<std::int32_t> feature_ptr, In<std::int32_t> apart) {
    return std::make_shared<ShapeData>(copy_of(weight_ptr, "weight_ptr"), copy_of(window_unit, "window_unit"),
                                       copy_of(unit_field, "unit_field"), copy_of(window_ptr, "window_ptr"),
                                       copy_of(feature_ptr, "feature_ptr"), copy_of(apart, "apart"));
}

void make_engine(KeptEngine* self, std::shared_ptr<ShapeData> shape, const ModelSettings& model, const Loss& loss,
                 const OptimizerSettings& optimizer, const BatchSizes& sizes, const EngineArrays& arrays, int threads,
                 std::int64_t n_steps) {
    need(threads >= 1, "threads must be at least 1");
    const auto n_outputs = static_cast<std::int64_t>(arrays.bias.values.size());
    const Settings settings{model, loss, optimizer, sizes, threads, n_steps, n_outputs};
    const Shape view = shape->view(model, sizes.tile);
    const bool adam = optimizer.adam, averaged = optimizer.ema > 0.0;
    const std::int64_t n_features = n_outputs * shape->n_features(), n_fields = shape->n_fields();
    arrays.bias.check("bias", n_outputs, adam, false);
    arrays.linear.check("linear", n_features, adam, averaged);
    arrays.factors.check("factors", n_features * view.width, adam, averaged);
    need(!averaged || static_cast<std::int64_t>(arrays.last.size()) == n_features,
         "last must have a number for every feature");
    need(static_cast<std::int64_t>(arrays.R.size()) >= n_outputs * copied_weights(model.model, view) &&
             static_cast<std::int64_t>(arrays.M.size()) >= n_outputs * copied_matrices(model.model, view),
         "R or M is too short");
    const bool is_matrix = model.model == Model::fmfm, is_low = model.model == Model::low_rank;
    need(arrays.between.has_value() == (is_matrix || is_low || model.model == Model::fwfm) &&
             arrays.scales.has_value() == is_low,
         "parameters between fields and the model are incompatible");
    Parameters parameters{};
    parameters.targets = {numbers(arrays.factors.values, "factors"), numbers(arrays.linear.values, "linear"),
                          numbers(arrays.bias.values, "bias"), numbers(arrays.R, "R"), numbers(arrays.M, "M")};
    parameters.vectors = arrays.factors.state(numbers(arrays.last, "last"));
    parameters.linear = arrays.linear.state();
    parameters.bias = arrays.bias.state();
    if (const auto& between = arrays.between) {
        const auto n = static_cast<std::int64_t>(between->values.size());
        const bool fits =
            is_low ? n_outputs > 0 && n % (n_outputs * n_fields) == 0
                   : n == n_outputs * model.members * n_fields * n_fields * (is_matrix ? model.k * model.k : 1);
        need(fits, "parameters between fields have another size than the model");
        between->check("between", n, adam, false);
        parameters.between = numbers(between->values, "between");
        parameters.n_between = n_outputs > 0 ? n / n_outputs : 0;
        parameters.between_state = between->state();
    }
    if (const auto& scales = arrays.scales) {
        const std::int64_t n = parameters.n_between / n_fields;
        scales->check("scales", n_outputs * n, adam, false);
        parameters.scales = numbers(scales->values, "scales");
        parameters.n_scales = n;
        parameters.scales_state = scales->state();
    }
    auto engine = std::make_unique<Engine>(std::move(shape), settings, parameters);
    new (self) KeptEngine{arrays, std::move(engine)};
}

Array<double> steps(KeptEngine& self, In2<std::int32_t> start, In2<float> weight, In<double> y,
                    In<double> sample_weight, In<std::int64_t> rows, In<double> learning_rates, std::int64_t batch_size,
                    std::optional<In<float>> offset) {
    Engine& engine = *self.engine;
    const ShapeData& shape = engine.shape();
    const std::size_t n = start.shape(0);
    need(static_cast<std::int64_t>(start.shape(1)) == shape.n_windows() && weight.shape(0) == n &&
             static_cast<std::int64_t>(weight.shape(1)) == shape.n_weights(),
         "start and weight do not have the shape of the layout");
    need(y.size() == n && sample_weight.size() == n, "y and sample_weight must have a number for every row");
    need(!offset || offset->size() == n, "offset must have a number for every row");
    need(batch_size >= 1 && batch_size <= engine.batch_size(),
         "a batch has from 1 to " + std::to_string(engine.batch_size()) + " rows (batch_size of the engine), got " +
             std::to_string(batch_size));
    const Data data{numbers(start, "start"), numbers(weight, "weight"),
                    numbers(y, "y"),         numbers(sample_weight, "sample_weight"),
                    numbers(rows, "rows"),   offset ? numbers(*offset, "offset") : nullptr};
    const auto n_rows = static_cast<std::int64_t>(rows.size());
    const std::int64_t n_batches = (n_rows + batch_size - 1) / batch_size;
    need(static_cast<std::int64_t>(learning_rates.size()) >= n_batches, "every batch needs a learning rate");
    const double* rates = numbers(learning_rates, "learning_rates");
    std::vector<double> losses(static_cast<std::size_t>(n_batches));
    {
        const nb::gil_scoped_release released;
        for (std::int64_t i = 0; i < n_rows; ++i) {
            if (data.rows[i] < 0 || data.rows[i] >= static_cast<std::int64_t>(n)) {
                throw std::out_of_range("a row index is out of range");
            }
        }
        engine.steps(data, n_rows, batch_size, rates, losses.data());
    }
    return give(std::move(losses));
}

void set_penalty(KeptEngine& self, In<std::int64_t> group_ptr, In<std::int64_t> begin, In<std::int64_t> end,
                 In<float> l2, In<float> l2_third, In<float> l2_linear, In<float> smoothness, In<std::int64_t> order,
                 In2<float> signs, In<std::int64_t> periodic, In2<std::int64_t> lengths) {
    Groups groups{copy_of(group_ptr, "group_ptr"),
                  copy_of(begin, "begin"),
                  copy_of(end, "end"),
                  copy_of(l2, "l2"),
                  copy_of(l2_third, "l2_third"),
                  copy_of(l2_linear, "l2_linear"),
                  copy_of(smoothness, "smoothness"),
                  copy_of(order, "order"),
                  std::vector<float>(signs.data(), signs.data() + signs.size()),
                  copy_of(periodic, "periodic"),
                  std::vector<std::int64_t>(lengths.data(), lengths.data() + lengths.size())};
    self.engine->set_penalty(std::move(groups));
}

// Parameters as scores read them, and the copies of those between fields.
struct WeightArrays {
    In<float> bias, linear, factors, R, M;
};

Array<float> scores(const ShapeData& shape, const ModelSettings& model, std::int64_t tile, const WeightArrays& arrays,
                    In2<std::int32_t> start, In2<float> weight, int threads) {
    const auto& [bias, linear, factors, R, M] = arrays;
    need(threads >= 1, "threads must be at least 1");
    // A larger one would overflow below before the sizes are compared.
    need(model.third <= static_cast<std::int64_t>(factors.size()), "third is larger than the vectors");
    const Model kind = model.model;
    const Shape view = shape.view(model, tile);
    const auto n = static_cast<std::int64_t>(start.shape(0));
    need(static_cast<std::int64_t>(start.shape(1)) == shape.n_windows() &&
             static_cast<std::int64_t>(weight.shape(0)) == n &&
             static_cast<std::int64_t>(weight.shape(1)) == shape.n_weights(),
         "start and weight do not have the shape of the layout");
    const auto n_outputs = static_cast<std::int64_t>(bias.size());
    const std::int64_t n_features = shape.n_features(), n_R = copied_weights(kind, view);
    const std::int64_t n_M = copied_matrices(kind, view);
    need(n_outputs >= 1 && static_cast<std::int64_t>(linear.size()) == n_outputs * n_features &&
             static_cast<std::int64_t>(factors.size()) == n_outputs * n_features * view.width &&
             static_cast<std::int64_t>(R.size()) >= n_outputs * n_R &&
             static_cast<std::int64_t>(M.size()) >= n_outputs * n_M,
         "the parameters do not have the sizes of the model and the layout");
    std::vector<Weights> weights;
    for (std::int64_t output = 0; output < n_outputs; ++output) {
        weights.push_back({numbers(factors, "factors") + output * n_features * view.width,
                           numbers(linear, "linear") + output * n_features, numbers(bias, "bias") + output,
                           numbers(R, "R") + output * n_R, numbers(M, "M") + output * n_M});
    }
    const Data data{numbers(start, "start"), numbers(weight, "weight"), nullptr, nullptr, nullptr, nullptr};
    std::vector<float> out(static_cast<std::size_t>(n_outputs * n));
    {
        const nb::gil_scoped_release released;
        score(shape, model, tile, weights, data, n, threads, out.data());
    }
    return give(std::move(out));
}

}  // namespace

void bind_engine(nb::module_& module) {
    nb::class_<ShapeData>(module, "Shape", "A layout as the loops read it; see splinefm.encode.slots.SlotLayout.")
        .def(nb::new_(&make_shape), nb::arg("weight_ptr").noconvert(), nb::arg("window_unit").noconvert(),
             nb::arg("unit_field").noconvert(), nb::arg("window_ptr").noconvert(), nb::arg("feature_ptr").noconvert(),
             nb::arg("apart").noconvert());
    nb::class_<Parameter>(module, "Parameter", "Some parameters and their optimizer state; nothing is copied.")
        .def(nb::init<Out<float>, Out<float>, Out<float>, Out<float>>(), nb::arg("values").noconvert(),
             nb::arg("m").noconvert(), nb::arg("v").noconvert(), nb::arg("average").noconvert());
    nb::class_<ModelSettings>(module, "ModelSettings", "A model and its sizes: see cpp/model.hpp.")
        .def(nb::new_(&make_model), nb::kw_only(), nb::arg("name"), nb::arg("k"), nb::arg("third") = 0,
             nb::arg("members") = 1, nb::arg("order") = 0);
    nb::class_<Loss>(module, "Loss", "A loss and its parameter, 0 if it has none: see cpp/losses.hpp.")
        .def(nb::new_(&loss_of), nb::arg("name"), nb::arg("parameter") = 0.0);
    nb::class_<OptimizerSettings>(module, "OptimizerSettings", "See splinefm.model.optimizers.Optimizer.")
        .def(nb::new_(&make_optimizer), nb::kw_only(), nb::arg("name"), nb::arg("beta1"), nb::arg("beta2"),
             nb::arg("eps"), nb::arg("weight_decay"), nb::arg("ema"));
    nb::class_<BatchSizes>(module, "BatchSizes", "How the rows of a batch are divided: see splinefm.model.workspace.")
        .def(nb::init<std::int64_t, std::int64_t, std::int64_t, std::int64_t>(), nb::kw_only(), nb::arg("tile"),
             nb::arg("shard"), nb::arg("block"), nb::arg("batch_size"));
    nb::class_<EngineArrays>(module, "EngineArrays",
                             "Parameters with their optimizer state, the copies R and M of those between fields, and "
                             "the step in which each feature was last active.")
        .def(nb::init<Parameter, Parameter, Parameter, std::optional<Parameter>, std::optional<Parameter>, Out<float>,
                      Out<float>, Out<std::int64_t>>(),
             nb::kw_only(), nb::arg("bias"), nb::arg("linear"), nb::arg("factors"), nb::arg("between").none(),
             nb::arg("scales").none(), nb::arg("R").noconvert(), nb::arg("M").noconvert(), nb::arg("last").noconvert());
    nb::class_<KeptEngine>(module, "Engine", "Steps of an optimizer; see splinefm.model.cpu.CpuEngine.")
        .def("__init__", &make_engine, nb::kw_only(), nb::arg("shape"), nb::arg("model"), nb::arg("loss"),
             nb::arg("optimizer"), nb::arg("sizes"), nb::arg("arrays"), nb::arg("threads"), nb::arg("n_steps"))
        .def("steps", &steps, nb::arg("start").noconvert(), nb::arg("weight").noconvert(), nb::arg("y").noconvert(),
             nb::arg("sample_weight").noconvert(), nb::arg("rows").noconvert(), nb::arg("learning_rates").noconvert(),
             nb::arg("batch_size"), nb::arg("offset").noconvert().none() = nb::none(),
             "A step on every batch of `batch_size` of the rows; returns the mean loss of each before its step. The "
             "offset is added to the scores.")
        .def("set_penalty", &set_penalty, nb::kw_only(), nb::arg("group_ptr").noconvert(), nb::arg("begin").noconvert(),
             nb::arg("end").noconvert(), nb::arg("l2").noconvert(), nb::arg("l2_third").noconvert(),
             nb::arg("l2_linear").noconvert(), nb::arg("smoothness").noconvert(), nb::arg("order").noconvert(),
             nb::arg("signs").noconvert(), nb::arg("periodic").noconvert(), nb::arg("lengths").noconvert(),
             "Penalties on groups of features, which lie end to end.")
        .def_prop_ro("n_steps", [](const KeptEngine& self) { return self.engine->n_steps(); }, "Steps so far.");
    module.attr("MAX_SUMMED") = MAX_SUMMED;
    module.attr("losses") = loss_table();
    nb::class_<WeightArrays>(module, "WeightArrays", "Parameters to score with, and the copies R and M.")
        .def(nb::init<In<float>, In<float>, In<float>, In<float>, In<float>>(), nb::kw_only(),
             nb::arg("bias").noconvert(), nb::arg("linear").noconvert(), nb::arg("factors").noconvert(),
             nb::arg("R").noconvert(), nb::arg("M").noconvert());
    module.def("score", &scores, nb::kw_only(), nb::arg("shape"), nb::arg("model"), nb::arg("tile"), nb::arg("weights"),
               nb::arg("start").noconvert(), nb::arg("weight").noconvert(), nb::arg("threads"),
               "Scores of encoded rows with any parameters; several classes one after the other.");
}

}  // namespace splinefm::bindings
