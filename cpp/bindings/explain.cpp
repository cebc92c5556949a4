// Terms of the score for exact explanations.
#include <nanobind/stl/string.h>

#include <memory>
#include <span>

#include "bindings/arrays.hpp"
#include "explain/terms.hpp"

namespace splinefm::bindings {
namespace {

using explain::Source;
using explain::Terms;
using Out3 = nb::ndarray<float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// Nothing large is copied: the arrays live as long as the terms that read them.
struct KeptTerms {
    In2<float> factors;
    In<float> linear, center;
    std::unique_ptr<Terms> terms;
};

template <class T> std::span<const T> span_of(const In<T>& array, const char* name) {
    return {numbers(array, name), array.size()};
}

void make_terms(KeptTerms* self, const std::string& model, std::int64_t k, In<std::int32_t> weight_ptr,
                In<std::int32_t> window_unit, In<std::int32_t> unit_field, In2<float> factors, In<float> linear,
                In<float> between, In<float> center, In<float> slope, int threads) {
    const Source source{model,
                        k,
                        span_of(weight_ptr, "weight_ptr"),
                        span_of(window_unit, "window_unit"),
                        span_of(unit_field, "unit_field"),
                        static_cast<std::int64_t>(factors.shape(0)),
                        static_cast<std::int64_t>(factors.shape(1)),
                        numbers(factors, "factors"),
                        span_of(linear, "linear"),
                        span_of(between, "between"),
                        span_of(center, "center"),
                        span_of(slope, "slope")};
    auto terms = std::make_unique<Terms>(source, threads);
    new (self) KeptTerms{std::move(factors), std::move(linear), std::move(center), std::move(terms)};
}

Slots rows_of(const Terms& terms, const In2<std::int32_t>& start, const In2<float>& weight) {
    const std::size_t n = start.shape(0);
    if (start.shape(1) != static_cast<std::size_t>(terms.n_windows()) || weight.shape(0) != n ||
        weight.shape(1) != static_cast<std::size_t>(terms.n_weights()))
        throw nb::value_error("start and weight do not have the shape of the layout");
    return {static_cast<std::int64_t>(n), numbers(start, "start"), numbers(weight, "weight")};
}

using Method = void (Terms::*)(const Slots& rows, const double* offset, double* out);

template <Method method, bool PAIRS>
void fill_rows(KeptTerms& self, In2<std::int32_t> start, In2<float> weight, In<double> offset, Out2<double> out) {
    Terms& terms = *self.terms;
    const Slots rows = rows_of(terms, start, weight);
    const auto n_fields = static_cast<std::size_t>(terms.n_fields());
    if (offset.size() != n_fields) throw nb::value_error("offset must have a number for every field");
    if (out.shape(0) != start.shape(0) || out.shape(1) != (PAIRS ? n_fields * (n_fields + 1) / 2 : n_fields))
        throw nb::value_error("out does not have the shape of what is asked for");
    const double* less = numbers(offset, "offset");
    double* to = numbers(out, "out");
    const nb::gil_scoped_release released;
    (terms.*method)(rows, less, to);
}

void fill_vectors(KeptTerms& self, In2<std::int32_t> start, In2<float> weight, Out3 out) {
    Terms& terms = *self.terms;
    const Slots rows = rows_of(terms, start, weight);
    if (out.shape(0) != start.shape(0) || out.shape(1) != static_cast<std::size_t>(terms.n_fields()) ||
        out.shape(2) != static_cast<std::size_t>(terms.width()))
        throw nb::value_error("out must have a vector for every row and field");
    float* to = numbers(out, "out");
    const nb::gil_scoped_release released;
    terms.vectors(rows, to);
}

}  // namespace

void bind_explain(nb::module_& module) {
    nb::class_<KeptTerms>(module, "ExplainTerms", "Terms of the score, row by row; see splinefm.inspect.terms.")
        .def("__init__", &make_terms, nb::kw_only(), nb::arg("model"), nb::arg("k"), nb::arg("weight_ptr").noconvert(),
             nb::arg("window_unit").noconvert(), nb::arg("unit_field").noconvert(), nb::arg("factors").noconvert(),
             nb::arg("linear").noconvert(), nb::arg("between").noconvert(), nb::arg("center").noconvert(),
             nb::arg("slope").noconvert(), nb::arg("threads"))
        .def("inner", &fill_rows<&Terms::inner, false>, nb::arg("start").noconvert(), nb::arg("weight").noconvert(),
             nb::arg("offset").noconvert(), nb::arg("out").noconvert(),
             "out = linear parts and products inside fields - offset.")
        .def("terms", &fill_rows<&Terms::terms, false>, nb::arg("start").noconvert(), nb::arg("weight").noconvert(),
             nb::arg("offset").noconvert(), nb::arg("out").noconvert(),
             "out = all that fields add, half of every product of two for each - offset.")
        .def("effects", &fill_rows<&Terms::effects, true>, nb::arg("start").noconvert(), nb::arg("weight").noconvert(),
             nb::arg("offset").noconvert(), nb::arg("out").noconvert(),
             "out = main effects of all fields - offset, then effects of all pairs.")
        .def("vectors", &fill_vectors, nb::arg("start").noconvert(), nb::arg("weight").noconvert(),
             nb::arg("out").noconvert(), "out = the vectors of fields - center.");
}

}  // namespace splinefm::bindings
