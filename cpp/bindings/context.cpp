// ContextSide: encoded contexts -> queries and constants, for searches through a catalog.
#include "rank/context.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <vector>

#include "bindings/row_params.hpp"
#include "scorer/slot_terms.hpp"
#include "windows.hpp"

namespace splinefm::bindings {
namespace {

using Blocks = In2<std::int64_t>;

// A copy: it cannot change after it is checked.
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
        : n_fields(n_fields), n_features(n_features), weight_ptr(copy(weight_ptr)), unit_field(copy(unit_field)),
          unit_ptr(check_windows(this->weight_ptr, copy(window_unit), beginnings_from_zero(this->unit_field))) {
        check(n_fields >= 1 && n_fields <= 1 << 20, "n_fields must be the number of fields");
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

    const std::int64_t n_fields, n_features;  // of the model

    std::vector<char> of_context() const {
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

// A linear map from the sums of a context's units, and from sums of products of 1, 2, .. `products` units, to a query.
struct QueryMap {
    std::vector<MapBlock> blocks;
    In<double> weights;
    std::int64_t products, length;
};

// With the arrays that it looks at.
class SideOwner {
public:
    SideOwner(const ContextSlots& slots, const ParamArrays& params, const QueryMap& map)
        : params(params), map(map), slots(slots),
          side(params_of(params, slots.n_fields, 0, 0, {Link::none, 0.0, 1.0}), slots.of_context(), map.products,
               this->map.blocks, span_of(map.weights, "weights"), map.length) {
        check(params.bias.size() == 1 && static_cast<std::int64_t>(params.factors.shape(0)) == slots.n_features,
              "params must have one output and the features of the layout");
    }

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
              "queries must have shape (contexts, length), and constants an entry for each context");
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
        check(inside, "start has a feature that does not exist");
        return finite;
    }

private:
    const ParamArrays params;
    const QueryMap map;
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
    nb::class_<ContextSlots>(module, "ContextSlots",
                             "The layout of a context's fields, with numbers of the fields and starts among all "
                             "fields of the model.")
        .def(nb::init<const In<std::int32_t>&, const In<std::int32_t>&, const In<std::int32_t>&, std::int64_t,
                      std::int64_t>(),
             nb::kw_only(), nb::arg("weight_ptr").noconvert(), nb::arg("window_unit").noconvert(),
             nb::arg("unit_field").noconvert(), nb::arg("n_fields"), nb::arg("n_features"));
    nb::class_<QueryMap>(module, "QueryMap",
                         "The linear map to a query of `length` numbers. `blocks` has rows (to, from, numbers that it "
                         "makes, numbers of a matrix that it takes or 0, first weight).")
        .def(
            "__init__",
            [](QueryMap* self, const Blocks& blocks, In<double> weights, std::int64_t products, std::int64_t length) {
                new (self) QueryMap{copy_blocks(blocks), weights, products, length};
            },
            nb::kw_only(), nb::arg("blocks").noconvert(), nb::arg("weights").noconvert(), nb::arg("products"),
            nb::arg("length"));
    nb::class_<SideOwner>(module, "ContextSide", "Encoded contexts -> queries and constants.")
        .def(nb::init<const ContextSlots&, const ParamArrays&, const QueryMap&>(), nb::kw_only(), nb::arg("slots"),
             nb::arg("params"), nb::arg("map"))
        .def("queries", &SideOwner::queries, nb::arg("start").noconvert(), nb::arg("weight").noconvert(),
             nb::arg("queries").noconvert(), nb::arg("constants").noconvert(),
             "Write queries and constants; whether all numbers are finite.");
    module.def("map_queries", &map_queries, nb::arg("blocks").noconvert(), nb::arg("weights").noconvert(),
               nb::arg("queries").noconvert(), nb::arg("out").noconvert(),
               "out[i] = the linear map of queries[i]; blocks and weights as for QueryMap.");
}

}  // namespace splinefm::bindings
