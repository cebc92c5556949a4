#include "encode/elementary.hpp"

#include <nanobind/stl/string_view.h>

#include "bindings/arrays.hpp"

namespace splinefm::bindings {

void bind_elementary(nb::module_& module) {
    module.def(
        "elementary",
        [](std::string_view function, const In<double>& x) {
            const double* const points = numbers(x, "x");
            auto [out, array] = new_array<double>(x.size());
            const nb::gil_scoped_release released;
            elementary(function, points, static_cast<std::int64_t>(x.size()), out);
            return array;
        },
        nb::arg("function"), nb::arg("x").noconvert(),
        "The function log, log1p, exp, expm1, asinh or atan of each x; asinh by formulas, the others by the C "
        "library.");
    module.def(
        "power",
        [](const In<double>& x, double exponent) {
            const double* const points = numbers(x, "x");
            auto [out, array] = new_array<double>(x.size());
            const nb::gil_scoped_release released;
            power(points, static_cast<std::int64_t>(x.size()), exponent, out);
            return array;
        },
        nb::arg("x").noconvert(), nb::arg("exponent"), "Each x to the power of `exponent`.");
}

}  // namespace splinefm::bindings
