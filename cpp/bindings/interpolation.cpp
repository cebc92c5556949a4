#include "encode/interpolation.hpp"

#include "bindings/arrays.hpp"

namespace splinefm::bindings {
namespace {

std::vector<double> copy(const In<double>& array, const char* name) {
    const double* first = numbers(array, name);
    return {first, first + array.size()};
}

Array<double> evaluate(const Interpolation& self, const In<double>& x) {
    const double* const points = numbers(x, "x");
    auto [out, array] = new_array<double>(x.size());
    const nb::gil_scoped_release released;
    self.evaluate(points, static_cast<std::int64_t>(x.size()), out);
    return array;
}

}  // namespace

void bind_interpolation(nb::module_& module) {
    nb::class_<Interpolation>(module, "Interpolation",
                              "Piecewise linear through (knots, values), constant beyond the ends; NaN stays NaN.")
        .def(
            "__init__",
            [](Interpolation* self, const In<double>& knots, const In<double>& values) {
                new (self) Interpolation(copy(knots, "knots"), copy(values, "values"));
            },
            nb::arg("knots").noconvert(), nb::arg("values").noconvert())
        .def("__call__", &evaluate, nb::arg("x").noconvert(), "The value at each x.");
}

}  // namespace splinefm::bindings
