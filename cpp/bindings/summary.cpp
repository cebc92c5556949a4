#include "encode/summary.hpp"

#include <nanobind/stl/tuple.h>

#include "bindings/arrays.hpp"

namespace splinefm::bindings {
namespace {

std::tuple<Array<double>, Array<double>, Array<double>> summarize(const In<double>& x, std::int64_t capacity) {
    const double* const first = numbers(x, "x");
    Summary kept;
    {
        const nb::gil_scoped_release released;
        kept = splinefm::summarize(first, static_cast<std::int64_t>(x.size()), capacity);
    }
    return {give(std::move(kept.value)), give(std::move(kept.below)), give(std::move(kept.at))};
}

}  // namespace

void bind_summary(nb::module_& module) {
    module.def("summarize", &summarize, nb::arg("x").noconvert(), nb::arg("capacity"),
               "Distinct values of an array, in order, at most `capacity`, with the rows below and at each.");
}

}  // namespace splinefm::bindings
