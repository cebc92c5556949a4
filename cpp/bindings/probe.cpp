// What the tests ask of the parts that no class shows: short vectors, the team of threads, denormal numbers.
#include <nanobind/stl/vector.h>

#include <atomic>
#include <thread>

#include "bindings/arrays.hpp"
#include "dispatch.hpp"
#include "pool.hpp"

namespace splinefm::bindings {
namespace {

Array<float> probe_vec(In<float> a, In<float> b) {
    const float *x = numbers(a, "a"), *y = numbers(b, "b");
    std::vector<float> out(8 * a.size() + 1);
    if (a.size() != b.size() || a.size() > 1024 || !kernels().probe(static_cast<int>(a.size()), x, y, out.data()))
        throw nb::value_error("a and b must have the same length, 4, 8, 16 or 32");
    return give(std::move(out));
}

// Each of `parts` parts adds its number to its own sum, `jobs` times over; product is x y as a part computes it.
std::vector<std::int64_t> probe_team(int threads, int parts, int jobs) {
    if (parts < 0 || jobs < 0) throw nb::value_error("parts and jobs must not be negative");
    Team team(threads);
    std::vector<std::int64_t> sums(parts, 0);
    nb::gil_scoped_release released;
    for (int job = 0; job < jobs; ++job) team.run(parts, [&](int i) noexcept { sums[i] += i; });
    return sums;
}

float probe_product(float x, float y) {
    Team team(1);
    const std::vector<float> a(4, x), b(4, y);
    std::vector<float> out(33);
    team.run(1, [&](int) noexcept { kernels().probe(4, a.data(), b.data(), out.data()); });
    return out[8];
}

}  // namespace

void bind_probe(nb::module_& module) {
    module.def("probe_vec", &probe_vec, nb::arg("a").noconvert(), nb::arg("b").noconvert(),
               "For tests: a + b, a - b, a b, a / b, b[0] a, sqrt(a), abs(a), max(a, b) and the sum of a.");
    module.def("probe_team", &probe_team, nb::arg("threads"), nb::arg("parts"), nb::arg("jobs"),
               "For tests: parts add their numbers to sums of their own, in so many jobs.");
    module.def("probe_product", &probe_product, nb::arg("x"), nb::arg("y"),
               "For tests: a product inside kernels, where denormal numbers are zero.");
}

}  // namespace splinefm::bindings
