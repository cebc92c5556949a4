// TopK: search through a catalog of vectors or of features.
#include "rank/top_k.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bindings/arrays.hpp"

namespace splinefm::bindings {
namespace {

template <class T> using In3 = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using AnyPanels = nb::ndarray<nb::ro, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

void require(bool holds, const char* message) {
    if (!holds) throw nb::value_error(message);
}

template <class Source> std::int64_t extent(const Source& array, int axis) {
    return static_cast<std::int64_t>(array.shape(axis));
}

// A catalog with the arrays that it looks at.
struct Catalog {
    AnyPanels panels;
    In3<float> weights;
    In<float> scales, offsets;
    std::unique_ptr<TopK> top_k;
};

template <class Number> constexpr Storage STORAGE = Storage::float32;
template <> constexpr Storage STORAGE<std::uint16_t> = Storage::float16;
template <> constexpr Storage STORAGE<std::int8_t> = Storage::int8;

template <class Number>
Catalog of_vectors(const In3<Number>& panels, const In<float>& scales, const In<float>& offsets, std::int64_t n_rows) {
    require(static_cast<std::int64_t>(offsets.size()) >= n_rows, "offsets must have an entry for every row");
    require(scales.size() == 0 || static_cast<std::int64_t>(scales.size()) >= n_rows,
            "scales must have an entry for every row, or none");
    const VectorItems items{.storage = STORAGE<Number>,
                            .panels = numbers(panels, "panels"),
                            .n_panels = extent(panels, 0),
                            .length = extent(panels, 1),
                            .size = extent(panels, 2),
                            .scales = scales.size() ? numbers(scales, "scales") : nullptr,
                            .offsets = numbers(offsets, "offsets"),
                            .n_rows = n_rows};
    return {AnyPanels(panels), {}, scales, offsets, std::make_unique<TopK>(items)};
}

Catalog of_effects(const In3<std::int32_t>& starts, const In3<float>& weights, const In2<std::int64_t>& windows,
                   const In<float>& offsets, std::int64_t n_rows) {
    require(static_cast<std::int64_t>(offsets.size()) >= n_rows, "offsets must have an entry for every row");
    require(windows.shape(1) == 4 && windows.shape(0) == starts.shape(1), "windows must be of shape (windows, 4)");
    require(weights.shape(0) == starts.shape(0) && weights.shape(2) == starts.shape(2),
            "starts and weights must be of the same panels");
    const EffectItems items{.starts = numbers(starts, "starts"),
                            .weights = numbers(weights, "weights"),
                            .windows = reinterpret_cast<const Window*>(numbers(windows, "windows")),
                            .n_panels = extent(starts, 0),
                            .n_windows = extent(starts, 1),
                            .n_weights = extent(weights, 1),
                            .size = extent(starts, 2),
                            .offsets = numbers(offsets, "offsets"),
                            .n_rows = n_rows};
    return {AnyPanels(starts), weights, {}, offsets, std::make_unique<TopK>(items)};
}

std::vector<std::pair<Array<float>, Array<std::int64_t>>>
search(const Catalog& self, const In2<float>& requests, const In<float>& constants, std::int64_t k,
       std::int64_t capacity, const In<std::int64_t>& visit, const In<std::uint8_t>& keep,
       const In<std::int32_t>& codes, const In<std::uint8_t>& wanted, int threads) {
    const std::int64_t n_rows = self.top_k->n_rows();
    require(keep.size() == 0 || static_cast<std::int64_t>(keep.size()) >= n_rows, "keep must be of all rows, or empty");
    const std::int64_t* panels = numbers(visit, "visit");
    const Wish wish{.k = k,
                    .capacity = capacity,
                    .visit = {panels, panels + visit.size()},
                    .only = {.keep = keep.size() ? keep.data() : nullptr,
                             .codes = numbers(codes, "codes"),
                             .wanted = wanted.size() ? wanted.data() : nullptr,
                             .n_codes = static_cast<std::int64_t>(codes.size()),
                             .n_wanted = static_cast<std::int64_t>(wanted.size())},
                    .threads = threads};
    const float *request = numbers(requests, "requests"), *constant = numbers(constants, "constants");
    std::vector<Found> found;
    {
        nb::gil_scoped_release released;
        found = self.top_k->search(request, extent(requests, 0), extent(requests, 1), constant,
                                   static_cast<std::int64_t>(constants.size()), wish);
    }
    std::vector<std::pair<Array<float>, Array<std::int64_t>>> given;
    for (Found& one : found) given.emplace_back(give(std::move(one.scores)), give(std::move(one.rows)));
    return given;
}

void effects_of(const In3<float>& panels, std::int64_t n_rows, const In2<float>& queries, const Out2<float>& out) {
    const VectorItems rows{.storage = Storage::float32,
                           .panels = numbers(panels, "panels"),
                           .n_panels = extent(panels, 0),
                           .length = extent(panels, 1),
                           .size = extent(panels, 2),
                           .scales = nullptr,
                           .offsets = nullptr,
                           .n_rows = n_rows};
    require(extent(queries, 1) == rows.length, "queries must be as long as features");
    require(extent(out, 0) >= n_rows && out.shape(1) == queries.shape(0), "out must be of shape (rows, queries)");
    const float* query = numbers(queries, "queries");
    float* written = numbers(out, "out");
    nb::gil_scoped_release released;
    row_effects(rows, query, extent(queries, 0), written);
}

template <class Number> void bind_vectors(nb::class_<Catalog>& top_k, const char* what) {
    top_k.def_static("vectors", &of_vectors<Number>, nb::arg("panels").noconvert(), nb::arg("scales").noconvert(),
                     nb::arg("offsets").noconvert(), nb::arg("n_rows"), what);
}

}  // namespace

void bind_top_k(nb::module_& module) {
    nb::class_<Catalog> top_k(module, "TopK", "The best items of a catalog in panels, which is vectors or features.");
    bind_vectors<float>(top_k, "Panels of vectors, shape (panels, length, columns).");
    bind_vectors<std::uint16_t>(top_k, "Of float16, as their bits.");
    bind_vectors<std::int8_t>(top_k, "Of int8, with a scale for each item.");
    top_k
        .def_static("effects", &of_effects, nb::arg("starts").noconvert(), nb::arg("weights").noconvert(),
                    nb::arg("windows").noconvert(), nb::arg("offsets").noconvert(), nb::arg("n_rows"),
                    "Panels of starts and weights; of each window the first effect, the largest start, the number of "
                    "weights and the line of the first (-1: it is 1).")
        .def("search", &search, nb::arg("requests").noconvert(), nb::arg("constants").noconvert(), nb::kw_only(),
             nb::arg("k"), nb::arg("capacity"), nb::arg("visit").noconvert(), nb::arg("keep").noconvert(),
             nb::arg("codes").noconvert(), nb::arg("wanted").noconvert(), nb::arg("threads"),
             "For each query scores and rows from the k-th best score up, in no order.")
        .def_static("effects_of", &effects_of, nb::arg("panels").noconvert(), nb::arg("n_rows"),
                    nb::arg("queries").noconvert(), nb::arg("out").noconvert(),
                    "out[row, q] = queries[q] · the numbers of a feature.");
    module.attr("TOGETHER") = TOGETHER;
}

}  // namespace splinefm::bindings
