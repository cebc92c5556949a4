// ContextSide: encoded contexts -> queries and constants, for searches through a catalog.
#include "rank/context.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <vector>

#include "bindings/arrays.hpp"
#include "model_names.hpp"
#include "scorer/checks.hpp"
#include "scorer/slot_terms.hpp"
#include "windows.hpp"

namespace splinefm::bindings {
namespace {

using Blocks = In2<std::int64_t>;

// A copy, which nobody changes after it is checked.
std::vector<MapBlock> copy_blocks(const Blocks& blocks) {
    check(blocks.shape(1) == 5, "blocks must be of shape (blocks, 5)");
    const auto* const first = reinterpret_cast<const MapBlock*>(numbers(blocks, "blocks"));
    return {first, first + blocks.shape(0)};
}

template <class T> std::span<const T> span_of(const In<T>& array, const char* name) {
    return {numbers(array, name), array.size()};
}

// The fields of a context in slots, whose starts count the features of all fields.
class ContextSlots {
public:
    ContextSlots(const In<std::int32_t>& weight_ptr, const In<std::int32_t>& window_unit,
                 const In<std::int32_t>& unit_field, std::int64_t n_fields, std::int64_t n_features)
        : weight_ptr(copy(weight_ptr)), unit_field(copy(unit_field)),
          unit_ptr(check_windows(this->weight_ptr, copy(window_unit), beginnings_from_zero(this->unit_field))) {
        for (const std::int32_t field : this->unit_field) check(field < n_fields, "unit_field must have fields");
        for (std::size_t w = 0; w + 1 < this->weight_ptr.size(); ++w)
            highest.push_back(static_cast<std::int32_t>(n_features - (this->weight_ptr[w + 1] - this->weight_ptr[w])));
        lowest.resize(highest.size());
    }

    Shape shape() const {
        Shape made{};
        made.weight_ptr = weight_ptr.data();
        made.unit_field = unit_field.data();
        made.unit_ptr = unit_ptr.data();
        made.lowest = lowest.data();
        made.highest = highest.data();
        made.n_units = static_cast<std::int64_t>(unit_field.size());
        made.n_windows = static_cast<std::int64_t>(highest.size());
        made.n_weights = weight_ptr.back();
        return made;
    }

    std::vector<char> of_context(std::int64_t n_fields) const {
        std::vector<char> own(static_cast<std::size_t>(n_fields));
        for (const std::int32_t field : unit_field) own[static_cast<std::size_t>(field)] = 1;
        return own;
    }

private:
    static std::vector<std::int32_t> copy(const In<std::int32_t>& array) {
        const std::int32_t* const first = numbers(array, "an array of the layout");
        return {first, first + array.size()};
    }
    // Fields counted from zero without gaps, as `check_windows` expects them.
    static std::vector<std::int32_t> beginnings_from_zero(const std::vector<std::int32_t>& fields) {
        std::vector<std::int32_t> counted(fields.size());
        for (std::size_t u = 1; u < fields.size(); ++u) {
            check(fields[u] >= fields[u - 1], "unit_field must ascend");
            counted[u] = counted[u - 1] + (fields[u] > fields[u - 1]);
        }
        check(fields.empty() || fields[0] >= 0, "unit_field must have fields");
        return counted;
    }

    const std::vector<std::int32_t> weight_ptr, unit_field, unit_ptr;
    std::vector<std::int32_t> lowest, highest;
};

RowParams params_of(const std::string& model, std::int64_t k, std::int64_t members, std::int64_t order,
                    const In2<float>& factors, const In<float>& linear, const In<float>& between, double bias,
                    std::int64_t n_fields) {
    check(n_fields >= 1 && n_fields <= 1 << 20, "n_fields must be the number of fields");
    const RowParams params{.model = scored_as(model_of(model)),
                           .k = k,
                           .width = static_cast<std::int64_t>(factors.shape(1)),
                           .order = order,
                           .members = members,
                           .n_fields = n_fields,
                           .n_features = static_cast<std::int64_t>(factors.shape(0)),
                           .factors = numbers(factors, "factors"),
                           .linear = numbers(linear, "linear"),
                           .between = numbers(between, "between"),
                           .bias = bias,
                           .link = Link::none,
                           .center = 0.0,
                           .scale = 1.0};
    check(linear.size() == factors.shape(0), "linear must have a number per feature");
    check_params(params, static_cast<std::int64_t>(between.size()), 0);
    return params;
}

// With the arrays that it looks at.
class SideOwner {
public:
    SideOwner(const In<std::int32_t>& weight_ptr, const In<std::int32_t>& window_unit,
              const In<std::int32_t>& unit_field, const std::string& model, std::int64_t k, std::int64_t members,
              std::int64_t order, In2<float> factors, In<float> linear, In<float> between, double bias,
              std::int64_t n_fields, std::int64_t products, const Blocks& blocks, In<double> weights,
              std::int64_t length)
        : factors(factors), linear(linear), between(between), weights(weights), blocks(copy_blocks(blocks)),
          slots(weight_ptr, window_unit, unit_field, n_fields, static_cast<std::int64_t>(factors.shape(0))),
          side(params_of(model, k, members, order, factors, linear, between, bias, n_fields),
               slots.of_context(n_fields), products, this->blocks, span_of(weights, "weights"), length) {}

    // False if a number is not finite.
    bool queries(const In2<std::int32_t>& start, const In2<float>& weight, const Out2<float>& queries,
                 const Out<float>& constants) const {
        const Shape shape = slots.shape();
        const auto n = static_cast<std::int64_t>(start.shape(0));
        check(static_cast<std::int64_t>(start.shape(1)) == shape.n_windows &&
                  static_cast<std::int64_t>(weight.shape(0)) == n &&
                  static_cast<std::int64_t>(weight.shape(1)) == shape.n_weights,
              "start and weight do not have the shape of the layout");
        check(static_cast<std::int64_t>(queries.shape(0)) == n &&
                  static_cast<std::int64_t>(queries.shape(1)) == side.length() &&
                  static_cast<std::int64_t>(constants.size()) == n,
              "queries must be of shape (contexts, length), with as many constants");
        const std::int32_t* const starts = numbers(start, "start");
        const float* const given = numbers(weight, "weight");
        float *const out = numbers(queries, "queries"), *const constant = numbers(constants, "constants");
        bool inside = true, finite = true;
        {
            const nb::gil_scoped_release released;
            const SlotReader reader(shape);
            Terms terms(shape.n_weights + 1);  // a weight of zero is written, too
            ContextSide::Workspace work;
            for (std::int64_t i = 0; i < n; ++i) {
                inside &= reader.read(starts + i * shape.n_windows, given + i * shape.n_weights, terms);
                finite &= side(terms, work, out + i * side.length(), constant + i);
            }
        }
        check(inside, "start has a number that is no feature");
        return finite;
    }

private:
    const In2<float> factors;
    const In<float> linear, between;
    const In<double> weights;
    const std::vector<MapBlock> blocks;
    const ContextSlots slots;
    const ContextSide side;
};

void map_queries(const Blocks& blocks, const In<double>& weights, const In2<float>& queries, const Out2<float>& out) {
    const auto n = static_cast<std::int64_t>(queries.shape(0)), length = static_cast<std::int64_t>(queries.shape(1));
    const auto width = static_cast<std::int64_t>(out.shape(1));
    const std::vector<MapBlock> own = copy_blocks(blocks);
    const LinearMap map(own, span_of(weights, "weights"), length, width);
    check(static_cast<std::int64_t>(out.shape(0)) == n, "out must have a row per query");
    const float* const from = numbers(queries, "queries");
    float* const to = numbers(out, "out");
    const nb::gil_scoped_release released;
    ContextSide::Workspace work;
    for (std::int64_t i = 0; i < n; ++i) map_query(map, from + i * length, length, work, to + i * width);
}

}  // namespace

void bind_context(nb::module_& module) {
    nb::class_<SideOwner>(module, "ContextSide",
                          "Encoded contexts -> queries and constants. The layout is that of the context's fields, with "
                          "numbers of the fields and starts among all fields; parameters as for RowScorer. A map has "
                          "rows (to, from, numbers that it makes, numbers of a matrix that it takes or 0, first "
                          "weight).")
        .def(nb::init<const In<std::int32_t>&, const In<std::int32_t>&, const In<std::int32_t>&, const std::string&,
                      std::int64_t, std::int64_t, std::int64_t, In2<float>, In<float>, In<float>, double, std::int64_t,
                      std::int64_t, const Blocks&, In<double>, std::int64_t>(),
             nb::arg("weight_ptr").noconvert(), nb::arg("window_unit").noconvert(), nb::arg("unit_field").noconvert(),
             nb::arg("model"), nb::arg("k"), nb::arg("members"), nb::arg("order"), nb::arg("factors").noconvert(),
             nb::arg("linear").noconvert(), nb::arg("between").noconvert(), nb::arg("bias"), nb::arg("n_fields"),
             nb::arg("products"), nb::arg("blocks").noconvert(), nb::arg("weights").noconvert(), nb::arg("length"))
        .def("queries", &SideOwner::queries, nb::arg("start").noconvert(), nb::arg("weight").noconvert(),
             nb::arg("queries").noconvert(), nb::arg("constants").noconvert(),
             "Write queries and constants; whether all numbers are finite.");
    module.def("map_queries", &map_queries, nb::arg("blocks").noconvert(), nb::arg("weights").noconvert(),
               nb::arg("queries").noconvert(), nb::arg("out").noconvert(),
               "out[i] = the linear map of queries[i]; a map as for ContextSide.");
}

}  // namespace splinefm::bindings
