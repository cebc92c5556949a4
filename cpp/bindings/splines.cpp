#include "encode/splines.hpp"

#include <limits>

#include "bindings/arrays.hpp"

namespace splinefm::bindings {
namespace {

template <class Weight> void uniform(const In<double>& u, std::int64_t segments, int degree, std::int64_t first,
                                     const OutColumn<std::int32_t>& start, const OutRows<Weight>& weight) {
    constexpr std::int64_t MOST = std::numeric_limits<std::int32_t>::max();
    const auto n = static_cast<std::int64_t>(u.size());
    if (degree < 1 || degree > MAX_DEGREE) throw nb::value_error("degree must lie between 1 and 5");
    if (segments < 1 || first < 0 || first > MOST - degree || segments > MOST - degree - first)
        throw nb::value_error("segments must be at least 1, first at least 0, and features fewer than 2**31");
    const SplineSlots<Weight> out{column(start, n, "start"), start.stride(0), rows(weight, n, degree + 1, "weight"),
                                  weight.stride(0)};
    const double* const points = numbers(u, "u");
    const nb::gil_scoped_release released;
    uniform_splines(points, n, static_cast<std::int32_t>(segments), degree, static_cast<std::int32_t>(first), out);
}

}  // namespace

void bind_splines(nb::module_& module) {
    const auto u = nb::arg("u").noconvert(), start = nb::arg("start").noconvert();
    const auto weight = nb::arg("weight").noconvert();
    module.def(
        "uniform_splines", &uniform<float>, u, nb::arg("segments"), nb::arg("degree"), nb::arg("first"), start, weight,
        "Write the first active function at each u, counted from `first`, and the weights of it and the `degree` "
        "functions behind it.");
    module.def("uniform_splines", &uniform<double>, u, nb::arg("segments"), nb::arg("degree"), nb::arg("first"), start,
               weight);
}

}  // namespace splinefm::bindings
